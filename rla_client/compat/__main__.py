"""`python -m rla_client.compat SCRIPT`: run a script that was written for the original RLA."""

import sys

from rla_client.compat import main

sys.exit(main())
