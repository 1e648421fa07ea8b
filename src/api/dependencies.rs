//! What is watched, and the rules known.

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use crate::incident::{Dependency, DependencyKey, Visibility};
use crate::wire::DependencyJson;

use super::answer::{ApiError, success, success_with_warnings};
use super::parameters::Parameters;
use super::{Board, Shared};

/// Dependencies in one answer when the caller does not say.
const LIMIT_DEFAULT: usize = 100;
/// The most dependencies in one answer.
const LIMIT_MAX: usize = 1000;

/// A dependency with the id it has in addresses.
#[derive(Debug, Serialize)]
struct Listed {
    id: String,
    #[serde(flatten)]
    dependency: DependencyJson,
}

impl From<&Dependency> for Listed {
    fn from(dependency: &Dependency) -> Self {
        Self { id: dependency_id(dependency), dependency: DependencyJson::from(dependency) }
    }
}

/// The id of a dependency in addresses.
pub(crate) fn dependency_id(dependency: &Dependency) -> String {
    key_id(&dependency.key)
}

/// The id of what is watched in addresses: the 64-bit FNV-1a hash of its source, watch and labels,
/// so that the same one has the same address on every replica and after every restart.
pub(crate) fn key_id(key: &DependencyKey) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let text = format!("{}\0{}\0{}", key.source, key.watch, key.labels);
    let hash = text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    format!("{hash:016x}")
}

/// The state of visibility with this fixed name.
pub(super) fn visibility(name: &str) -> Option<Visibility> {
    [Visibility::Learning, Visibility::Watched, Visibility::Blind, Visibility::Stale]
        .into_iter()
        .find(|state| state.as_str() == name)
}

/// `GET /api/v1/dependencies`
pub(super) async fn list(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let parameters = Parameters::parse(query.as_deref())?;
    let board = shared.board.borrow().clone();
    let chosen = choose(&board, parameters)?;
    let page: Vec<Listed> = chosen.page.iter().map(|it| Listed::from(*it)).collect();
    let faults: Vec<String> = board
        .sources
        .iter()
        .filter_map(|it| Some(format!("source `{}`: {}", it.name, it.fault.as_ref()?)))
        .collect();
    let data = json!({"dependencies": page, "next_cursor": chosen.next_cursor});
    Ok(success_with_warnings(data, &faults))
}

/// One page of what is watched.
#[derive(Debug)]
pub(super) struct Chosen<'a> {
    pub(super) page: Vec<&'a Dependency>,
    pub(super) next_cursor: Option<String>,
    /// How many pass the filters, on all pages.
    pub(super) matching: usize,
}

/// The dependencies that the parameters ask for.
pub(super) fn choose(board: &Board, mut parameters: Parameters) -> Result<Chosen<'_>, ApiError> {
    let state = parameters.one_of("state", visibility, "learning, watched, blind, stale")?;
    let watch = parameters.text("watch");
    let source = parameters.text("source");
    let words = parameters.text("q").map(|words| words.to_lowercase());
    let limit = parameters.count("limit", LIMIT_DEFAULT, LIMIT_MAX)?;
    let cursor = parameters.text("cursor");
    parameters.finish()?;
    let mut chosen: Vec<&Dependency> = board
        .dependencies
        .iter()
        .filter(|it| state.is_none_or(|state| it.state == state))
        .filter(|it| watch.as_ref().is_none_or(|watch| it.key.watch == *watch))
        .filter(|it| source.as_ref().is_none_or(|source| it.key.source == *source))
        .filter(|it| {
            words.as_ref().is_none_or(|words| it.key.name().to_lowercase().contains(words))
        })
        .collect();
    chosen.sort_by(|a, b| a.key.cmp(&b.key));
    let matching = chosen.len();
    let start = match &cursor {
        None => 0,
        // The cursor is the id of the last one on the page before.
        Some(cursor) => match chosen.iter().position(|it| dependency_id(it) == *cursor) {
            Some(index) => index + 1,
            None => {
                return Err(ApiError::bad_data("invalid parameter \"cursor\": its place is gone"));
            }
        },
    };
    let page: Vec<&Dependency> = chosen[start..].iter().take(limit).copied().collect();
    let more = matching > start + page.len();
    let next_cursor = page.last().filter(|_| more).map(|last| dependency_id(last));
    Ok(Chosen { page, next_cursor, matching })
}

/// `GET /api/v1/dependencies/{id}`
pub(super) async fn one(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let board = shared.board.borrow().clone();
    let found = board.dependencies.iter().find(|it| dependency_id(it) == id);
    match found {
        Some(dependency) => Ok(success(Listed::from(dependency))),
        None => Err(ApiError::not_found("there is no dependency of this id")),
    }
}

/// `GET /api/v1/schedules`
pub(super) async fn schedules(State(shared): State<Shared>) -> Response {
    let rules = shared.rules.borrow().clone();
    success(json!({"schedules": rules.schedules, "next_cursor": null}))
}

/// `GET /api/v1/presets`
pub(super) async fn presets(State(shared): State<Shared>) -> Response {
    let rules = shared.rules.borrow().clone();
    success(json!({"presets": rules.presets, "next_cursor": null}))
}
