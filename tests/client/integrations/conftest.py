from support.user_scripts import scripts_fixture

__all__ = ["scripts_fixture"]
