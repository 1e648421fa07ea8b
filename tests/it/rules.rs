//! The rule files against the rest of squall: every selector of a preset is one that a watch takes.

use squall::rules::Rules;
use squall::series::selector::Selector;

#[test]
fn every_selector_of_every_preset_is_a_plain_counter_selector() {
    let mut faults = Vec::new();
    for preset in Rules::builtin().presets() {
        let selectors = [Some(&preset.requests), preset.errors.as_ref(), preset.calls.as_ref()];
        let selectors = selectors.into_iter().flatten().chain([&preset.probe]);
        for text in selectors.chain(&preset.retries).chain(&preset.breakers) {
            match text.parse::<Selector>() {
                Ok(selector) if selector.name().is_some() => {}
                Ok(_) => faults.push(format!("{}: `{text}` names no metric", preset.id)),
                Err(fault) => faults.push(format!("{}: `{text}`: {fault}", preset.id)),
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
