"""What noise is worth in differential privacy: epsilons, and the most that any attacker identifies."""

from gradveil.dp.accountant import Accountant as Accountant
from gradveil.dp.accountant import Epsilon as Epsilon
from gradveil.dp.accountant import check_delta as check_delta
from gradveil.dp.accountant import epsilon as epsilon
from gradveil.dp.accountant import epsilon_of as epsilon_of
from gradveil.dp.certificate import Certificate as Certificate
from gradveil.dp.certificate import certify_by_account as certify_by_account
from gradveil.dp.certificate import certify_gaussian as certify_gaussian
from gradveil.dp.empirical import empirical_epsilon as empirical_epsilon
from gradveil.dp.recovery import recovery_chance as recovery_chance
from gradveil.dp.trade_off import chance as chance
