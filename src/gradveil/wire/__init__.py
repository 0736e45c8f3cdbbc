"""Updates as bytes, as small as what a defense has left of them: how much a client sends."""

from gradveil.wire.message import decode as decode
from gradveil.wire.message import encode as encode
from gradveil.wire.message import encoded_size as encoded_size
