//! The scenarios that come with squall, also as files under `tests/scenarios/`.

/// Name and text of each scenario, in the order of names.
macro_rules! scenarios {
    ($($name:literal,)*) => {
        /// The scenarios that come with squall: name and text, by name.
        pub const BUILTIN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../tests/scenarios/", $name, ".yml")))),*
        ];
    };
}

scenarios! {
    "case-f01-cascade",
    "case-f02-hot-loader",
    "case-f20-instant-retries",
    "case-f21-poll-until-answered",
    "case-f22-sync-loop",
    "case-f24-conflicts",
    "case-f30-devices",
    "case-l06-rule-scheduler",
    "case-l10-token-refresh",
    "case-l11-ttl-expiry",
    "case-l14-link-preview",
    "case-l16-coalesced-release",
    "case-l23-connection-ageing",
    "case-l24-weak-jitter",
    "case-l25-two-hours",
    "case-l27-one-wide-hump",
    "case-l29-dedup-artefact",
    "case-l30-scraper-failover",
    "case-l32-rounded-steps",
    "case-l33-steady-load-test",
    "case-l34-steady-80",
    "case-l35-minute-scrapes",
    "case-l36-new-pod",
    "case-l37-keep-alives",
    "case-l39-autoscaler",
    "case-l40-missed-ticks",
    "case-l45-four-pollers",
    "case-s07-jobs-n4",
    "case-s08-burst-shape",
    "case-s11-tabs-3s",
    "case-s12-retry-after-5s",
    "case-s13-cap-after-jitter",
    "case-s14-added-jitter",
    "case-s16-wait-and-timeout",
    "case-s24-contention-factor-2",
    "case-s25-federation-factor-5",
    "circuit-breaker",
    "clock-jump",
    "contention",
    "counter-resets",
    "cron",
    "deadlines",
    "deploy",
    "diurnal",
    "fixed-10s",
    "flash-crowd",
    "gc-pauses",
    "health-checks",
    "herd-decorrelated",
    "herd-equal",
    "herd-full",
    "herd-none",
    "immediate-flood",
    "layers",
    "load-balancer-flapping",
    "metastable",
    "mixed-libraries",
    "noise",
    "organic-surge",
    "out-of-order",
    "outage-comb",
    "outage-without-retries",
    "polling-in-step",
    "proportional-10",
    "replica-flips",
    "retry-budget",
    "staircase",
    "surge-with-errors",
    "syn-retransmission",
}

/// The text of the scenario of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Scenario;
    use super::*;
    use crate::rules::Rules;

    #[test]
    fn every_file_is_built_in_and_faultless_and_says_what_is_right() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("a readable folder")
            .map(|entry| entry.expect("a readable entry").file_name().into_string().expect("UTF-8"))
            .collect();
        files.sort();
        let built_in: Vec<String> = BUILTIN.iter().map(|(name, _)| format!("{name}.yml")).collect();
        assert_eq!(built_in, files);
        let rules = Rules::builtin();
        for (name, text) in BUILTIN {
            match Scenario::parse(name, text, &rules) {
                Ok(scenario) => assert!(!scenario.expect.why.is_empty(), "{name}"),
                Err(faults) => {
                    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
                    panic!("{name}.yml:\n{}", lines.join("\n"));
                }
            }
        }
    }
}
