//! What only the whole of a scenario shows: who calls whom.

use super::super::{Calls, Scenario};
use crate::rules::spanned::{Faults, Node};

/// Checks a scenario whose parts are faultless.
pub(super) fn check(scenario: &Scenario, dependencies: &[Node], clients: &[Node], faults: &Faults) {
    let calls_on = |dependency: usize| scenario.dependencies[dependency].calls;
    for (index, node) in dependencies.iter().enumerate() {
        let path = format!("dependencies[{index}].calls");
        let Some(population) = calls_on(index) else { continue };
        if scenario.clients[population].calls != Calls::Inner {
            let name = &scenario.clients[population].name;
            faults.add(node.line, &path, format!("`{name}` must be `inner: true`"));
        }
        // Following the calls as often as there are dependencies ends, unless they go in a circle.
        let next = |at: usize| calls_on(at).map(|population| scenario.clients[population].to);
        let mut at = next(index);
        for _ in 0..dependencies.len() {
            at = at.and_then(next);
        }
        if at.is_some() {
            faults.add(node.line, &path, "the calls go in a circle and never end");
        }
    }
    for (index, (population, node)) in scenario.clients.iter().zip(clients).enumerate() {
        let called = (0..scenario.dependencies.len()).any(|d| calls_on(d) == Some(index));
        if population.calls == Calls::Inner && !called {
            let path = format!("clients[{index}].inner");
            faults.add(node.line, &path, "no dependency `calls` it");
        }
        let to = &scenario.dependencies[population.to];
        if population.guard.hedge_after_seconds.is_some()
            && (to.calls.is_some() || to.contention.is_some())
        {
            let path = format!("clients[{index}].hedge");
            let says = format!("`{}` calls on or is contended and cannot be hedged", to.name);
            faults.add(node.line, &path, says);
        }
    }
}
