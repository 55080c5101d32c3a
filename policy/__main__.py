"""The policy pack, as `pulumi --policy-pack policy` starts it."""

from pulumi_policy import EnforcementLevel, PolicyPack
from sunspot_policies import POLICIES

PolicyPack(name="sunspot", enforcement_level=EnforcementLevel.MANDATORY, policies=POLICIES)
