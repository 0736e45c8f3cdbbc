"""Help texts and forms of values that several commands share."""

MODEL = (
    "a name (`gradveil list models`), or a Python file and the function in it that builds"
    " the model; the file is executed; also timm:NAME, torchvision:NAME or a Hugging Face folder"
)
MODEL_FORM = "NAME|FILE.py:FACTORY"
PICTURES = "a name (`gradveil list data`), a folder with one folder per class, a .zip or an .npz file"
PICTURES_FORM = "NAME|PATH"
DATA_OPTION = "One option of the data set, such as size=32, resize=bicubic or crop=none; repeatable."
PAIR_FORM = "KEY=VALUE"
NORMALIZATION = (
    "Batch normalization in the clients: eval uses running statistics, batch uses the "
    "batch's own, batch-shared also sends them to the server"
)
NORMALIZE = (
    "Constants that the model's input is normalized with; its weights keep their names (default auto: those of"
    " the data for a named model, none for your own)"
)
NORMALIZE_FORM = "imagenet|cifar10|cifar100|none|M,M,M/S,S,S"
DEVICE = "Where to compute; auto takes a GPU if there is one (default auto)."
DEVICE_FORM = "auto|cpu|cuda[:N]"
SEED = "Random seed, an integer from 0; the same seed gives the same result (default 0)."
RAY = "Compute on a Ray cluster: its address, auto (the running cluster) or local (start one for this run)."
QUIET = "Print errors only."
WORKERS = "Number of processes, one thread each; 0 computes in this process (default: one per core)."
LOSS = (
    "Loss of the clients: cross-entropy, binary-cross-entropy, or a Python file and the function of outputs and"
    " targets in it that returns their mean loss; the file is executed (default: what the data calls for)"
)
LOSS_FORM = "NAME|FILE.py:NAME"
OPTIMIZERS = "sgd|adam|adamw|rmsprop|adagrad"
