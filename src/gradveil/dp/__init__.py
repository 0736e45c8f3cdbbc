"""What noise is worth in differential privacy."""

from gradveil.dp.accountant import Accountant as Accountant
from gradveil.dp.accountant import Epsilon as Epsilon
from gradveil.dp.accountant import check_delta as check_delta
from gradveil.dp.accountant import epsilon as epsilon
from gradveil.dp.accountant import epsilon_of as epsilon_of
