"""A federation as its owner wrote it: torch, Pillow and Flower. Only the server's one wrapper is ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CLIENTS, PICTURES, SIDE, CLASSES = 3, 4, 16, 4
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.conv2, self.head = nn.Conv2d(8, 16, 3, 2, 1), nn.Linear(256, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.conv2(F.relu(self.bn(self.conv1(x))))).flatten(1))


class Pictures(Dataset[tuple[Tensor, int]]):
    """Those of one client, resized and normalized in its own transform."""

    def __init__(self, root: Path, client: int) -> None:
        files = sorted(root.glob("*/*.png"), key=lambda file: (file.name, file.parent.name))
        self.files = files[client * PICTURES : (client + 1) * PICTURES]
        self.classes = sorted(folder.name for folder in root.iterdir())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        file = self.files[place]
        picture = Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
        return (pixels - MEAN) / STD, self.classes.index(file.parent.name)


def train(net: nn.Module, loader: DataLoader[tuple[Tensor, int]]) -> None:
    net.train()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for images, labels in loader:
        optimizer.zero_grad()
        criterion(net(images), labels).backward()
        optimizer.step()


def client_app(root: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train_round(message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])  # type: ignore[arg-type]
        net = Net()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
        train(net, DataLoader(Pictures(Path(root), number), batch_size=2, shuffle=True))
        content: dict[str, Any] = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": PICTURES, "client": number}),
        }
        return Message(RecordDict(content), reply_to=message)

    return app


def server_app(folder: str) -> ServerApp:
    import gradveil.flower
    from gradveil.core.scenario import LocalTraining

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        training = LocalTraining(optimizer="adam", rate=1e-3, epochs=1, batch_size=2, order="unknown",
                                 batchnorm="batch-shared")  # fmt: skip
        protocol = gradveil.flower.Protocol(training=training, shape=(3, SIDE, SIDE), classes=CLASSES)
        inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        torch.manual_seed(0)
        strategy = gradveil.CuriousServer(inner, folder, protocol)
        strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=2)

    return app


def main(root: str, folder: str, temporary: str) -> None:
    from flwr.simulation import run_simulation

    from gradveil.flower.simulation import backend

    settings: Any = backend(2, Path(temporary), Path(folder) / "spilled")
    run_simulation(server_app(folder), client_app(root), CLIENTS, backend_config=settings)
