"""What noise is worth in differential privacy."""

from gradveil.accounting.epsilon import Accountant as Accountant
from gradveil.accounting.epsilon import Epsilon as Epsilon
from gradveil.accounting.epsilon import check_delta as check_delta
from gradveil.accounting.epsilon import epsilon as epsilon
from gradveil.accounting.mechanism import spent as spent
