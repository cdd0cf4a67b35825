"""The assertions of the modules that tests are made of explain themselves, too."""

import pytest

pytest.register_assert_rewrite("tests.model.driver", "tests.model.merging", "tests.model.world")
