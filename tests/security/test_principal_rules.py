"""Names of principals from the subjects of certificates."""

from __future__ import annotations

import pytest

from klog.errors import InvalidConfig
from klog.security.principal_rules import PrincipalRules

KAFKAS = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (KAFKAS, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        (KAFKAS, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (KAFKAS, "cn=JohnDoe,ou=SME", "johndoe"),
        (KAFKAS, "OU=JavaSoft,O=Sun Microsystems", "OU=JavaSoft,O=Sun Microsystems"),
        (" RULE:CN=(.*)/a\\/b\\$$1/U , DEFAULT", "CN=q", "A/B$Q"),
        ("RULE:CN=(.)(.*)/$2$12$0$9/", "CN=ab", "ba2CN=ab$9"),
        ("RULE:CN=(a)?b/x$1/", "CN=b", "x"),
        ("RULE:CN=a/b/,RULE:CN=a/c/", "CN=a", "b"),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_decides(rules: str, subject: str, name: str) -> None:
    assert PrincipalRules(rules)(subject) == name


def test_a_subject_that_no_rule_matches_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule of ssl.principal.mapping.rules matches 'CN=ab'"):
        PrincipalRules("RULE:CN=a/b/")("CN=ab")


@pytest.mark.parametrize(
    "rules", ["foo", "RULE:a/b", "RULE:a/b/X", "DEFAULT/L", "RULE:(/b/", "RULE:a/$b/", "RULE:a/b\\", "DEFAULT;DEFAULT"]
)
def test_invalid_rules_are_an_error_with_the_name_of_the_property(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)
