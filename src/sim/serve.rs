//! A world that runs beside the real clock, as targets to scrape and as a Prometheus over them.
//!
//! With it anything that reads a Prometheus can be tried on a storm: squall, a dashboard, an alert.
//! It answers raw samples by an instant query on a range selector as Prometheus does (left-open
//! range, sorted labels, values as text), latest samples for a plain selector, and the few listings
//! and counts that `squall doctor` asks for. It evaluates no more: `rate(…)` is refused, as
//! `bad_data`.
//!
//! The simulation itself stays synchronous and knows no clock. Each request brings the world to the
//! present first, so that what is answered is complete up to that instant. This file alone of `sim`
//! knows axum: it is a second face of the laboratory, not of squall's own API.

mod answers;
mod query;
mod selector;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use super::openmetrics::write_exposition;
use super::scenario::Scenario;
use super::world::World;
use crate::clock::Clock;
use crate::series::Timestamp;

/// How long samples are kept: longer than any window that squall asks for on a poll.
const RETENTION_SECONDS: f64 = 7_200.0;

/// How often the world is brought to the present when nobody asks: often enough that no request has
/// to wait for a long stretch.
const PACE: Duration = Duration::from_secs(1);

/// A world beside a clock.
#[derive(Debug)]
pub struct Live {
    world: Mutex<World>,
    clock: Arc<dyn Clock>,
    /// The real instant at which the world stood at `from_seconds`.
    started: Timestamp,
    from_seconds: f64,
    speed: f64,
    start_unix_seconds: f64,
    scrape_seconds: f64,
    address: String,
}

impl Live {
    /// Starts a world that has already run for `history_seconds` and goes on at `speed` times real
    /// time. `address` is how it is reached, for the listings.
    #[must_use]
    pub fn start(
        scenario: &Scenario,
        seed: u64,
        speed: f64,
        history_seconds: f64,
        clock: Arc<dyn Clock>,
        address: &str,
    ) -> Arc<Self> {
        let started = clock.now();
        let mut scenario = scenario.clone();
        scenario.start_unix_seconds = started.seconds() - history_seconds;
        let mut world = World::new(&scenario, seed);
        world.advance(history_seconds);
        Arc::new(Self {
            world: Mutex::new(world),
            clock,
            started,
            from_seconds: history_seconds,
            speed,
            start_unix_seconds: scenario.start_unix_seconds,
            scrape_seconds: scenario.scrape.interval_seconds,
            address: address.to_owned(),
        })
    }

    /// The world, at the present.
    fn present(&self) -> MutexGuard<'_, World> {
        let elapsed = self.clock.now().seconds_since(self.started).max(0.0);
        // A panic while it was held is a bug of the simulation; the world stands where it stood.
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.advance(self.from_seconds + elapsed * self.speed);
        world
    }

    /// The present as the samples are stamped.
    fn now(&self, world: &World) -> Timestamp {
        Timestamp::from_seconds(self.start_unix_seconds + world.now_seconds())
    }
}

/// The paths of a live world.
pub fn router(live: Arc<Live>) -> Router {
    Router::new()
        .route("/targets", get(http_sd))
        .route("/targets/{number}/metrics", get(metrics))
        .route("/truth", get(truth))
        .merge(answers::router())
        .with_state(live)
}

/// Serves a live world until `until` is done.
///
/// # Errors
///
/// When the listener fails.
pub async fn serve(
    listener: tokio::net::TcpListener,
    live: Arc<Live>,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let app = router(Arc::clone(&live));
    let pace = async move {
        loop {
            tokio::time::sleep(PACE).await;
            live.present().forget(RETENTION_SECONDS);
        }
    };
    tokio::select! {
        biased;
        served = axum::serve(listener, app).with_graceful_shutdown(until) => served,
        () = pace => Ok(()),
    }
}

/// The targets as Prometheus' HTTP service discovery reads them.
async fn http_sd(State(live): State<Arc<Live>>) -> Response {
    let world = live.present();
    let groups: Vec<_> = world
        .targets()
        .into_iter()
        .map(|(number, job, instance)| {
            json!({
                "targets": [live.address],
                "labels": {
                    "__metrics_path__": format!("/targets/{number}/metrics"),
                    "job": job,
                    "instance": instance,
                },
            })
        })
        .collect();
    axum::Json(groups).into_response()
}

async fn metrics(State(live): State<Arc<Live>>, Path(number): Path<usize>) -> Response {
    let world = live.present();
    if !world.targets().iter().any(|(known, _, _)| *known == number) {
        return (StatusCode::NOT_FOUND, "no such target is up\n").into_response();
    }
    let text = write_exposition(&world.exposition(number));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// What really happens, for whoever wants to check an answer.
async fn truth(State(live): State<Arc<Live>>) -> Response {
    axum::Json(live.present().truth().to_json()).into_response()
}

#[cfg(test)]
mod tests;
