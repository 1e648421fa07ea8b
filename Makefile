# What a person types; see README.md. Everything runs from a fresh clone.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo

.PHONY: help build demo picture readme-pictures test test-servers kills backtest-month accuracy accuracy-noise accuracy-null accuracy-names

help:              ## list the targets
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: +.*## */\t/' | expand -t 16

build:             ## the release binary, target/release/squall
	$(CARGO) build --release --locked

demo:              ## a simulated shop, the daemon beside it, and the story on the terminal
	$(CARGO) run --release --locked --quiet -- demo

picture:           ## the pictures of a simulated herd without jitter, target/picture/*.svg
	mkdir -p target/picture
	$(CARGO) run --release --locked --quiet -- simulate herd-none --out target/picture/herd-none.om
	$(CARGO) run --release --locked --quiet -- analyze --plot target/picture --by=dependency \
		--requests='http_client_requests_total' --errors='http_client_requests_total{code=~"5.."}' \
		target/picture/herd-none.om

readme-pictures:   ## the pictures in README.md, deploy/pictures/ (with Debian's chromium and chromium-driver)
	$(CARGO) test --locked --test it -- the_first_storm_is_seen_read_judged_and_found_again
	mkdir -p deploy/pictures
	cp target/tmp/page/incident.svg deploy/pictures/incident.svg
	cp target/tmp/page/incident-window.png deploy/pictures/page.png

test:              ## everything CI runs, in CI's order
	tests/run.sh

test-servers:      ## the end-to-end tests against other servers: VictoriaMetrics, newer Prometheus
	tests/servers.sh

kills:             ## five hundred kills at random instants over a week of incidents; SEED=1 for others
	SQUALL_TEST_KILLS=500 $(if $(SEED),SQUALL_TEST_SEED=$(SEED)) \
	$(CARGO) test --locked --test it -- --nocapture store::kill::kills

backtest-month:    ## thirty days of fifty dependencies, twelve storms planted, found by `squall backtest`
	SQUALL_TEST_BACKTEST_DAYS=30 SQUALL_TEST_BACKTEST_DAY_SECONDS=86400 SQUALL_TEST_BACKTEST_DEPENDENCIES=50 \
	SQUALL_TEST_BACKTEST_STORMS=12 SQUALL_TEST_BACKTEST_TARGETS=4 \
	$(CARGO) test --release --locked --test it -- --nocapture a_backtest_finds_what_was_planted

accuracy:          ## the detection figures, over 3,900 drawn cases (90 minutes on two processors); DRAWS=400 for fewer, FLAGS=--fresh
	$(CARGO) test --release --locked --quiet --test accuracy -- \
		draws $(DRAWS) $(FLAGS) --report tests/accuracy/RESULTS.md

accuracy-noise:    ## the p-values on coloured noise, over 24,000 windows; DRAWS=2400 for fewer
	$(CARGO) test --release --locked --quiet --test accuracy -- \
		noise $(DRAWS) $(FLAGS) --report tests/accuracy/RESULTS.md

accuracy-null:     ## pages on 10,000 days without a storm; DAYS=1000 for fewer
	$(CARGO) test --release --locked --quiet --test accuracy -- \
		null $(DAYS) $(FLAGS) --report tests/accuracy/RESULTS.md

accuracy-names:    ## whether every rule without jitter is named, at two samplings; DRAWS=24 for fewer
	$(CARGO) test --release --locked --quiet --test accuracy -- \
		names $(DRAWS) $(FLAGS) --report tests/accuracy/RESULTS.md
