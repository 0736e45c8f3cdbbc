"""Generator against critic: hinge loss, the average of the generator beside, and a step as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from gradveil.generators.conditional import ConditionalGan
from gradveil.generators.critic import Critic
from gradveil.generators.gan_course import Drawn, GanCourse

SETTLING = 32  # batches over which the average generator's statistics are taken at the end


class Duel:
    """Generator, critic and the average of the generator; `learn` is one step of all three."""

    def __init__(self, generator: ConditionalGan, critic: Critic, images: Tensor, labels: Tensor, course: GanCourse):
        self.course = course
        for network in (generator, critic):
            network.to(course.device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
        self.images, self.labels = images.to(course.device), labels.to(course.device)
        self.networks = {"generator": generator, "critic": critic, "average": deepcopy(generator)}
        self.optimizers = {
            "generator": course.optimizer(generator, course.rate),
            "critic": course.optimizer(critic, course.critic_rate),
        }

    def draw(self, block: int) -> Drawn:
        return Drawn.of(block, len(self.images), self.networks["generator"].noise, self.course)

    def set_rates(self, warmth: float) -> None:
        for name, rate in (("generator", self.course.rate), ("critic", self.course.critic_rate)):
            for group in self.optimizers[name].param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate * warmth)
                else:
                    group["lr"] = rate * warmth

    def learn(self, drawn: Drawn) -> Tensor:
        """The two losses, which stay on the device."""
        lost = torch.zeros((), device=self.images.device)
        for turn in range(self.course.critic_steps):
            lost = self._teach_critic(drawn, turn)
        fooled = self._teach_generator(drawn)
        self._average()
        return torch.stack([lost, fooled])

    def _teach_critic(self, drawn: Drawn, turn: int) -> Tensor:
        real = self.images[drawn.real[turn]].float() / 255
        real = torch.where(drawn.mirrored[turn][:, None, None, None], real.flip(-1), real)
        with torch.no_grad():
            made, classes = self._generate(drawn, turn)
        both = torch.cat([real, made.float()]).contiguous(memory_format=torch.channels_last)
        with self.course.autocast():
            opinion = self.networks["critic"](both, torch.cat([self.labels[drawn.real[turn]], classes])).float()
        of_real, of_made = opinion.chunk(2)
        loss = torch.relu(1 - of_real).mean() + torch.relu(1 + of_made).mean()
        return self._move("critic", loss)

    def _teach_generator(self, drawn: Drawn) -> Tensor:
        critic = self.networks["critic"].requires_grad_(False)
        made, classes = self._generate(drawn, self.course.critic_steps)
        with self.course.autocast():
            loss = -critic(made, classes).float().mean()
        loss = self._move("generator", loss)
        critic.requires_grad_(True)
        return loss

    def _generate(self, drawn: Drawn, turn: int) -> tuple[Tensor, Tensor]:
        classes, generator = self.labels[drawn.like[turn]], self.networks["generator"]
        with self.course.autocast():
            latent = torch.cat([drawn.noise[turn], generator.embed(classes).float()], 1)
            return generator(latent), classes

    def _move(self, name: str, loss: Tensor) -> Tensor:
        self.optimizers[name].zero_grad(set_to_none=True)
        loss.backward()
        self.optimizers[name].step()
        return loss.detach()

    @torch.no_grad()
    def _average(self) -> None:
        ours, theirs = (_floats(self.networks[name]) for name in ("average", "generator"))
        torch._foreach_lerp_(ours, theirs, 1 - self.course.average)  # type: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def begin_average_anew(self) -> None:
        for ours, theirs in zip(*(_floats(self.networks[name]) for name in ("average", "generator")), strict=True):
            ours.copy_(theirs)

    @torch.no_grad()
    def settled(self) -> ConditionalGan:
        """The average generator, with statistics of its own pictures."""
        average = self.networks["average"]
        norms = [module for module in average.modules() if isinstance(module, nn.BatchNorm2d)]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean of all batches
        average.train()
        drawn = self.draw(-1)
        for step in range(SETTLING):
            classes = self.labels[drawn.like[step, 0]]
            average(torch.cat([drawn.noise[step, 0], average.embed(classes)], 1))
        return average.to("cpu", memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]


def _floats(network: nn.Module) -> list[Tensor]:
    return [x for x in network.state_dict().values() if x.is_floating_point()]


def capture_step(duel: Duel) -> Callable[[Drawn], Tensor]:
    """A step as a CUDA graph. Capturing needs trial runs, so what they change is put back."""
    kept = {name: deepcopy(network.state_dict()) for name, network in duel.networks.items()}
    moments = {name: deepcopy(optimizer.state_dict()) for name, optimizer in duel.optimizers.items()}
    held = Drawn(*(part.clone() for part in duel.draw(0).at(0)))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries choose their algorithms before the capture
            duel.learn(held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        losses = duel.learn(held)
    _put_back(duel, kept, moments)

    def learn(drawn: Drawn) -> Tensor:
        for ours, given in zip(held, drawn, strict=True):
            ours.copy_(given)
        graph.replay()
        return losses

    return learn


@torch.no_grad()
def _put_back(duel: Duel, kept: Mapping[str, Mapping[str, Tensor]], moments: Mapping[str, dict]) -> None:
    """In place: the graph knows these tensors by address."""
    for name, state in kept.items():
        for key, tensor in duel.networks[name].state_dict().items():
            tensor.copy_(state[key])
    for name, optimizer in duel.optimizers.items():
        before = moments[name]["state"]
        for number, state in optimizer.state_dict()["state"].items():
            for key, tensor in state.items():
                tensor.copy_(before[number][key]) if number in before else tensor.zero_()
