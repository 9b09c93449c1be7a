"""Routes of the policy: show and change it."""

from fastapi import APIRouter

from punctual.api.context import Context, Operator, note_change
from punctual.api.problems import answers
from punctual.client.schema import PolicyRequest, PolicyStanding
from punctual.core.errors import OptionChecks

router = APIRouter(tags=["cluster"])


@router.get("/policy", responses=answers())
async def policy(context: Context) -> PolicyStanding:
    """Show the policy that makes the plans, and its parameters."""
    return PolicyStanding(name=context.host.policy, parameters=dict(context.host.policy_parameters), before=None)


@router.put("/policy", responses=answers(415))
def change_policy(asked: PolicyRequest, context: Context, caller: Operator) -> PolicyStanding:
    """Make plans with another policy, or with other parameters; jobs go on meanwhile."""
    context.check_takes_changes()
    before = context.host.policy
    checks = OptionChecks()
    with checks.of("name"):
        context.host.change_policy(asked.name, asked.parameters, by=str(caller))
    checks.done()
    context.host.settle()
    note_change(caller, f"policy '{asked.name}' with {asked.parameters} took the place of '{before}'")
    return PolicyStanding(name=asked.name, parameters=dict(asked.parameters), before=before)
