"""Why a round does not replay: one file a kind of reason, and one table. A new reason is a file and a row."""

from __future__ import annotations

from collections.abc import Mapping

from gradveil.capture.causes.adaptive import change_numbers
from gradveil.capture.causes.augment import crop_pictures
from gradveil.capture.causes.batchnorm import change_batchnorm
from gradveil.capture.causes.cause import Cause
from gradveil.capture.causes.class_weights import weigh_classes
from gradveil.capture.causes.clipping import clip_steps
from gradveil.capture.causes.detail import change_detail
from gradveil.capture.causes.dropout import draw_masks
from gradveil.capture.causes.form import change_form
from gradveil.capture.causes.label_smoothing import smooth_labels
from gradveil.capture.causes.labels import change_labels
from gradveil.capture.causes.minibatches import change_minibatches
from gradveil.capture.causes.momentum import change_momentum
from gradveil.capture.causes.normalization import change_normalization
from gradveil.capture.causes.normalization_fit import fit_normalization
from gradveil.capture.causes.optimizer import change_optimizer
from gradveil.capture.causes.order import change_order
from gradveil.capture.causes.rate import fit_rate
from gradveil.capture.causes.resize import change_resize
from gradveil.capture.causes.scale import fit_scale
from gradveil.capture.causes.schedule import change_schedule
from gradveil.capture.causes.steps import change_steps
from gradveil.capture.causes.value_range import change_range
from gradveil.capture.causes.weight_decay import change_decay

CAUSES: Mapping[str, Cause] = {  # in the order in which they are believed where several fit alike
    "form": Cause(change_form, quick=True),
    "scale": Cause(fit_scale, quick=True),
    "range": Cause(change_range, quick=True),
    "normalization": Cause(change_normalization, quick=True),
    "batchnorm": Cause(change_batchnorm, quick=True),
    "steps": Cause(change_steps, quick=True),
    "momentum": Cause(change_momentum, quick=True),
    "decay": Cause(change_decay, quick=True),
    "optimizer": Cause(change_optimizer, quick=True),
    "order": Cause(change_order, quick=True),
    "adaptive": Cause(change_numbers),
    "schedule": Cause(change_schedule),
    "clipping": Cause(clip_steps),
    "smoothing": Cause(smooth_labels),
    "labels": Cause(change_labels),
    "class weights": Cause(weigh_classes),
    "minibatches": Cause(change_minibatches),
    "rate": Cause(fit_rate),
    "resize": Cause(change_resize),
    "fit": Cause(fit_normalization, slow=True),
    "detail": Cause(change_detail),
    "dropout": Cause(draw_masks),
    "augment": Cause(crop_pictures),
}
SAME = (  # two names for one thing: never both
    {"normalization", "fit"}, {"range", "fit"}, {"scale", "rate"}, {"resize", "detail"}, {"order", "minibatches"},
    {"steps", "minibatches"}, {"form", "scale"},
)  # fmt: skip
