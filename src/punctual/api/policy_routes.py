"""The policy that shares out what there is: show it, and have another one do it."""

from fastapi import APIRouter

from punctual.api.context import Context, Operator, note_change
from punctual.api.problems import answers
from punctual.client.schema import PolicyRequest, PolicyStanding
from punctual.core.errors import OptionChecks

router = APIRouter(tags=["cluster"])


@router.get("/policy", responses=answers())
async def policy(context: Context) -> PolicyStanding:
    """Show which policy makes the plans, and what it is made with."""
    return PolicyStanding(name=context.host.policy, parameters=dict(context.host.policy_parameters), before=None)


@router.put("/policy", responses=answers(415))
def change_policy(asked: PolicyRequest, context: Context, caller: Operator) -> PolicyStanding:
    """Have another policy make the plans, or the same one with other parameters; jobs go on meanwhile."""
    context.check_takes_changes()
    before = context.host.policy
    checks = OptionChecks()
    with checks.of("name"):
        context.host.change_policy(asked.name, asked.parameters, by=str(caller))
    checks.done()
    context.host.settle()
    note_change(caller, f"policy '{asked.name}' with {asked.parameters} took the place of '{before}'")
    return PolicyStanding(name=asked.name, parameters=dict(asked.parameters), before=before)
