//! One attempt of one call: the guards before it, the answer, and what the client does then.

use super::super::dependency::{Answer, CONFLICT, OK, TIMED_OUT, micros, seconds};
use super::super::scenario::Calls;
use super::super::truth::GROUPS_MAX;
use super::{BUDGET_BURST, BreakerState, Call, NONE, What, World};

/// When the kernel gives up on a connection that nobody answers, after six retransmissions: the
/// end of an attempt into a black hole by a client without a timeout.
const KERNEL_GIVES_UP_SECONDS: f64 = 127.0;

impl World {
    pub(super) fn new_call(
        &mut self,
        population: usize,
        client: u32,
        parent: u32,
        parent_serial: u32,
    ) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        let fleet = &mut self.fleets[population];
        let target = if client == NONE {
            self.scraper.any_target(fleet.job, &mut fleet.draws)
        } else {
            self.scraper.home_target(fleet.job, client as usize)
        };
        let call = Call {
            population: population as u32,
            target,
            client,
            serial: self.serial,
            parent,
            parent_serial,
            round: NONE,
            retry: 0,
            code: OK,
            started: u64::MAX,
            attempted: 0,
            pending: 0,
            wait_seconds: 0.0,
            retry_after_seconds: f64::NAN,
        };
        match self.free.pop() {
            Some(number) => {
                self.calls[number as usize] = call;
                number
            }
            None => {
                self.calls.push(call);
                (self.calls.len() - 1) as u32
            }
        }
    }

    fn release(&mut self, number: u32) {
        self.serial = self.serial.wrapping_add(1);
        self.calls[number as usize].serial = self.serial;
        self.free.push(number);
    }

    pub(super) fn attempt(&mut self, number: u32) {
        let now = self.now;
        self.serial = self.serial.wrapping_add(1);
        let call = &mut self.calls[number as usize];
        call.serial = self.serial;
        call.attempted = now;
        let first = call.started == u64::MAX;
        if first {
            call.started = now;
        }
        let (population, retry, round) = (call.population as usize, call.retry, call.round);
        if !self.scraper.is_active(call.target) {
            // Its target is gone: a client that stays with one moves on, any other takes any.
            let client = if call.client == NONE { number } else { call.client };
            call.target = self.scraper.home_target(self.fleets[population].job, client as usize);
        }
        let target = call.target;
        let dependency = self.fleets[population].plan.to;
        if first {
            self.truth.populations[population].calls += 1;
            self.scraper.count_extra(target, dependency, false);
        }
        if !self.guards_let_through(number, population, target as usize, retry) {
            self.truth.populations[population].held_back += 1;
            self.end(now, number, false);
            return;
        }
        if retry > 0 {
            self.scraper.count_extra(target, dependency, true);
        }
        let group = (retry as usize).min(GROUPS_MAX - 1);
        let truth = &mut self.truth.populations[population];
        truth.groups[group].add(seconds(now));
        if round != NONE {
            truth.add_to_cohort(round as usize, group, seconds(now));
        }
        if let Some(row) = self.truth.dependencies[dependency].1.at((now / 1_000_000) as usize) {
            row.attempts += 1;
            row.retries += u32::from(retry > 0);
        }
        self.send(number, population, dependency);
    }

    /// Sends the attempt on its way and plans for its outcome.
    fn send(&mut self, number: u32, population: usize, dependency: usize) {
        let (now, serial) = (self.now, self.serial);
        if self.dependencies[dependency].plan.contention.is_some() {
            let trip = self.dependencies[dependency].trip();
            self.plan(now + trip, What::Read, number, serial);
            return;
        }
        let answer = self.dependencies[dependency].answer(now, population);
        let timeout = self.fleets[population].timeout;
        if answer.is_ok() && self.dependencies[dependency].plan.calls.is_some() {
            self.plan(now.saturating_add(answer.after), What::CallOn, number, serial);
            if timeout < u64::MAX {
                self.plan(now + timeout, What::GiveUp, number, serial);
            }
            return;
        }
        let (after, code) = cut(answer, timeout);
        if let Some(patience) = self.fleets[population].plan.guard.hedge_after_seconds {
            let patience = micros(patience);
            if after > patience {
                let call = &mut self.calls[number as usize];
                (call.pending, call.code) = (now + after, code);
                self.plan(now + patience, What::Hedge, number, serial);
                return;
            }
        }
        self.outcome(number, now + after, code, answer.retry_after);
    }

    /// The second attempt of a hedged call; the better outcome of the two counts.
    pub(super) fn hedge(&mut self, number: u32) {
        let call = self.calls[number as usize];
        let population = call.population as usize;
        let dependency = self.fleets[population].plan.to;
        let answer = self.dependencies[dependency].answer(self.now, population);
        let (after, code) = cut(answer, self.fleets[population].timeout);
        let (done, first_done) = (self.now + after, call.pending);
        self.truth.populations[population].hedges += 1;
        let line = &mut self.truth.dependencies[dependency].1;
        if let Some(row) = line.at((self.now / 1_000_000) as usize) {
            row.attempts += 1;
            row.retries += 1;
        }
        let second_wins = match (code == OK, call.code == OK) {
            (true, true) => done < first_done,
            (second_ok, first_ok) => second_ok || (!first_ok && done > first_done),
        };
        // The loser is counted when the winner is known: the client cancels it.
        let (loser, winner) =
            if second_wins { (call.code, (done, code)) } else { (code, (first_done, call.code)) };
        self.scraper.count(call.target, dependency, loser, self.now, winner.0);
        self.outcome(number, winner.0, winner.1, answer.retry_after);
    }

    /// The dependency has served its part of a request and calls the next one for it.
    pub(super) fn call_on(&mut self, number: u32) {
        let call = self.calls[number as usize];
        let dependency = self.fleets[call.population as usize].plan.to;
        if let Some(inner) = self.dependencies[dependency].plan.calls {
            let child = self.new_call(inner, NONE, number, call.serial);
            self.attempt(child);
        }
    }

    /// The client stops waiting for an answer that hangs on an inner call.
    pub(super) fn give_up(&mut self, number: u32) {
        self.outcome(number, self.now, TIMED_OUT, None);
    }

    pub(super) fn read(&mut self, number: u32) {
        let call = self.calls[number as usize];
        let dependency = self.fleets[call.population as usize].plan.to;
        let state = &mut self.dependencies[dependency];
        self.calls[number as usize].pending = state.version;
        let trips = state.trip() + state.trip();
        self.plan(self.now + trips, What::Write, number, call.serial);
    }

    pub(super) fn write(&mut self, number: u32) {
        let call = self.calls[number as usize];
        let dependency = self.fleets[call.population as usize].plan.to;
        let state = &mut self.dependencies[dependency];
        let code = if state.version == call.pending { OK } else { CONFLICT };
        state.version += u64::from(code == OK);
        let done = self.now + state.trip();
        self.outcome(number, done, code, None);
    }

    /// Counts an outcome that the client will know at `done`, and goes on from there.
    fn outcome(&mut self, number: u32, done: u64, code: u16, retry_after: Option<f64>) {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        let call = &mut self.calls[number as usize];
        call.serial = serial;
        call.code = code;
        call.retry_after_seconds = retry_after.unwrap_or(f64::NAN);
        let (population, target, attempted) =
            (call.population as usize, call.target, call.attempted);
        let dependency = self.fleets[population].plan.to;
        self.scraper.count(target, dependency, code, self.now, done);
        let line = &mut self.truth.dependencies[dependency].1;
        if let Some(row) = line.at((attempted / 1_000_000) as usize) {
            row.in_flight += 1;
            if let Some(row) = line.at((done / 1_000_000) as usize) {
                row.in_flight -= 1;
                row.served += u32::from(code == OK);
                row.failed += u32::from(code != OK);
            }
        }
        if self.fleets[population].defers {
            self.plan(done, What::Done, number, serial);
        } else {
            self.settle(done, number);
        }
    }

    pub(super) fn settle_deferred(&mut self, number: u32) {
        let call = self.calls[number as usize];
        let fleet = &mut self.fleets[call.population as usize];
        let target = call.target as usize;
        fleet.in_flight[target] = fleet.in_flight[target].saturating_sub(1);
        if let Some(breaker) = fleet.plan.guard.breaker {
            let state = &mut fleet.breakers[target];
            let opens = Some(self.now.saturating_add(micros(breaker.open_seconds)));
            if state.open_until.is_some() {
                // Of what was sent before it opened nothing counts: the probe alone decides.
                if state.probe == Some(number) {
                    let open_until = if call.code == OK { None } else { opens };
                    *state = BreakerState { failures: 0, open_until, probe: None };
                }
            } else if call.code == OK {
                state.failures = 0;
            } else {
                state.failures += 1;
                if state.failures >= breaker.failures {
                    state.open_until = opens;
                }
            }
        }
        self.settle(self.now, number);
    }

    /// Decides at `at` whether the call is over or tried again.
    fn settle(&mut self, at: u64, number: u32) {
        let call = self.calls[number as usize];
        let fleet = &mut self.fleets[call.population as usize];
        let policy = &fleet.plan.retry;
        if call.code == OK || call.retry >= policy.retries_max {
            self.end(at, number, call.code == OK);
            return;
        }
        let drawn = policy.wait_seconds(call.retry, call.wait_seconds, &mut fleet.draws);
        let told = policy.honours_retry_after && !call.retry_after_seconds.is_nan();
        let wait = if told { call.retry_after_seconds } else { drawn };
        let next = at.saturating_add(micros(wait));
        if seconds(next - call.started) > policy.time_budget_seconds {
            self.end(at, number, false);
            return;
        }
        let call = &mut self.calls[number as usize];
        call.retry += 1;
        call.wait_seconds = drawn;
        self.plan_attempt(next, number);
    }

    fn end(&mut self, at: u64, number: u32, ok: bool) {
        let call = self.calls[number as usize];
        let population = call.population as usize;
        let truth = &mut self.truth.populations[population];
        truth.served += u64::from(ok);
        truth.given_up += u64::from(!ok);
        truth.last_end_seconds = truth.last_end_seconds.max(seconds(at));
        if call.parent != NONE {
            self.release(number);
            self.answer_parent(call, ok);
            return;
        }
        if let Calls::Loop { until_seconds, pause_seconds, pause_spread, .. } =
            self.fleets[population].plan.calls
        {
            let spread = 1.0 + pause_spread * (2.0 * self.fleets[population].draws.uniform() - 1.0);
            let next = at + micros(pause_seconds * spread);
            if seconds(next) <= until_seconds {
                let call = &mut self.calls[number as usize];
                (call.retry, call.started, call.wait_seconds) = (0, u64::MAX, 0.0);
                self.plan_attempt(next, number);
                return;
            }
        }
        self.release(number);
    }

    fn answer_parent(&mut self, call: Call, ok: bool) {
        let parent = self.calls[call.parent as usize];
        if parent.serial == call.parent_serial {
            let dependency = self.fleets[parent.population as usize].plan.to;
            let failure = self.dependencies[dependency].plan.error_code;
            self.outcome(call.parent, self.now, if ok { OK } else { failure }, None);
        }
    }

    /// Whether budget, breaker, bulkhead and switch let this attempt through.
    fn guards_let_through(
        &mut self,
        number: u32,
        population: usize,
        target: usize,
        retry: u32,
    ) -> bool {
        let now = self.now;
        let fleet = &mut self.fleets[population];
        let guard = fleet.plan.guard;
        if let Some(share) = guard.budget_share {
            if retry == 0 {
                fleet.budget = (fleet.budget + share).min(BUDGET_BURST.max(fleet.budget));
            } else if fleet.budget >= 1.0 {
                fleet.budget -= 1.0;
            } else {
                return false;
            }
        }
        if retry > 0 && guard.retries_end_seconds.is_some_and(|end| seconds(now) > end) {
            return false;
        }
        if let Some(limit) = guard.bulkhead
            && fleet.in_flight[target] >= limit
        {
            return false;
        }
        let state = &mut fleet.breakers[target];
        if let Some(open_until) = state.open_until {
            if now < open_until || state.probe.is_some() {
                return false;
            }
            // Half open: this one is the probe, the others wait for its outcome.
            state.probe = Some(number);
        }
        if fleet.defers {
            fleet.in_flight[target] += 1;
        }
        true
    }
}

/// The outcome of an answer under a client's timeout: microseconds until it is known, and its code.
fn cut(answer: Answer, timeout: u64) -> (u64, u16) {
    if answer.after > timeout {
        (timeout, TIMED_OUT)
    } else if answer.after == u64::MAX {
        (micros(KERNEL_GIVES_UP_SECONDS), TIMED_OUT)
    } else {
        (answer.after, answer.code)
    }
}
