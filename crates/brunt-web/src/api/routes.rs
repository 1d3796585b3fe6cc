//! The requests of the API and their responses. docs/live-page.md lists them.
//!
//! The rule: a route's place in the table decides whether it needs the token: routes that need it are behind
//! [`bearer_only`]. Disk access goes through [`Blocking`]; a handler itself never blocks.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use brunt_study::experiment::Experiment;
use serde::Deserialize;
use serde_json::json;

use super::blocking::Blocking;
use super::body::JsonBody;
use super::examples::examples;
use super::links::{LinkedPage, PageLinks};
use super::plan::PlanSketch;
use super::results::ResultsFolder;
use super::runs::{ServedRuns, ServedStartError};
use super::token::{ServerToken, bearer_only};
use super::{CheckedText, ExperimentActions};
use crate::http::Place;
use crate::http::answer::{json as answer, of, trouble};

/// A report may run its own scripts in an opaque origin, separate from the page's, without network access.
const REPORT_POLICY: &str = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; \
     style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// Maximum number of results on a page that compares them.
const COMPARED_MAX: usize = 20;

/// Lets clients with the token stop the run of `brunt run --serve`.
pub struct RunControl {
    id: Arc<str>,
    token: ServerToken,
    stop: Arc<dyn Fn() + Send + Sync>,
}

impl RunControl {
    /// Controls the run whose results go to a folder with this name; `stop` ends it.
    ///
    /// # Errors
    /// The system can't provide random numbers.
    pub fn new(id: &str, stop: impl Fn() + Send + Sync + 'static) -> std::io::Result<RunControl> {
        Ok(RunControl {
            id: id.into(),
            token: ServerToken::make()?,
            stop: Arc::new(stop),
        })
    }

    /// The run's token.
    pub fn token(&self) -> &ServerToken {
        &self.token
    }

    pub(crate) fn routes(self) -> Router {
        let RunControl { id, token, stop } = self;
        let about = json!({
            "version": env!("CARGO_PKG_VERSION"), "mode": "run", "running": id, "can_start": false,
        });
        let stops = async move |Path(asked): Path<String>| {
            if asked != *id {
                return no_run();
            }
            stop();
            accepted()
        };
        Router::new()
            .route("/api/runs/{id}/stop", post(stops))
            .route_layer(from_fn_with_state(token, bearer_only))
            .route(
                "/api/about",
                get(async move || answer(StatusCode::OK, &about)),
            )
    }
}

/// State shared by the handlers of `brunt serve`.
#[derive(Clone)]
pub struct ServedState {
    runs: Arc<ServedRuns>,
    disk: Blocking<ServedDisk>,
    links: Arc<PageLinks>,
    may_start: bool,
}

/// The parts of the state that access disks.
struct ServedDisk {
    workshop: Arc<dyn ExperimentActions>,
    results: Arc<ResultsFolder>,
}

impl ServedState {
    /// The state of one server.
    pub fn new(
        workshop: Arc<dyn ExperimentActions>,
        runs: Arc<ServedRuns>,
        results: Arc<ResultsFolder>,
        may_start: bool,
    ) -> ServedState {
        let disk = Blocking::new(ServedDisk { workshop, results });
        ServedState {
            runs,
            disk,
            links: Arc::default(),
            may_start,
        }
    }

    /// All routes.
    pub fn routes(self, token: ServerToken) -> Router {
        Router::new()
            .route("/api/check", post(check))
            .route("/api/runs", post(start))
            .route("/api/runs/{id}/stop", post(stop))
            .route("/api/results", get(list))
            .route("/api/results/{id}/report", get(report))
            .route("/api/results/{id}/experiment", get(experiment))
            .route("/api/compare", post(compare))
            .route("/api/history", post(history))
            .route("/api/view", post(view))
            .route_layer(from_fn_with_state(token, bearer_only))
            .route("/api/about", get(about))
            .route(
                "/api/schema",
                get(async || answer(StatusCode::OK, &Experiment::schema())),
            )
            .route(
                "/api/examples",
                get(async || answer(StatusCode::OK, &examples())),
            )
            .route("/view/{key}", get(linked))
            .with_state(self)
    }
}

fn accepted() -> Response {
    answer(StatusCode::ACCEPTED, &json!({ "stopping": true }))
}

fn no_run() -> Response {
    trouble(StatusCode::NOT_FOUND, "no such run is in progress", None)
}

fn no_result() -> Response {
    trouble(
        StatusCode::NOT_FOUND,
        "no such result",
        Some("search again: the result may have been moved"),
    )
}

async fn about(State(state): State<ServedState>) -> Response {
    let about = json!({
        "version": env!("CARGO_PKG_VERSION"), "mode": "serve", "running": state.runs.running(),
        "can_start": state.may_start,
    });
    answer(StatusCode::OK, &about)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SentText {
    text: String,
    #[serde(default)]
    name: Option<String>,
}

/// The response for a checked text.
fn checked(checked: &CheckedText) -> Response {
    let plan = checked
        .found
        .as_ref()
        .map(|found| PlanSketch::of(&found.experiment, &found.plan));
    let body = json!({ "errors": checked.errors, "notes": checked.notes, "plan": plan });
    answer(StatusCode::OK, &body)
}

/// The response for a text from which no experiment can be started: the first mistake as an ordinary error, and all
/// mistakes with their positions.
fn mistaken(checked: &CheckedText) -> Response {
    let first = checked.errors.first();
    let error = first.map_or("the experiment cannot be run".into(), |first| {
        match first.line {
            Some(line) => format!("line {line}: {}", first.message),
            None => first.message.clone(),
        }
    });
    let body = json!({
        "error": error, "advice": first.and_then(|first| first.advice.as_deref()),
        "errors": checked.errors, "notes": checked.notes, "plan": null,
    });
    answer(StatusCode::UNPROCESSABLE_ENTITY, &body)
}

async fn check(
    State(state): State<ServedState>,
    JsonBody(sent): JsonBody<SentText>,
) -> Result<Response, Response> {
    state
        .disk
        .with(move |disk| checked(&disk.workshop.check(&sent.text)))
        .await
}

async fn start(
    State(state): State<ServedState>,
    JsonBody(sent): JsonBody<SentText>,
) -> Result<Response, Response> {
    if !state.may_start {
        let advice = Some("start it without --no-start");
        return Err(trouble(
            StatusCode::FORBIDDEN,
            "this server does not start experiments",
            advice,
        ));
    }
    let runs = state.runs;
    let work = move |disk: &ServedDisk| {
        let text = disk.workshop.check(&sent.text);
        let Some(found) = &text.found else {
            return mistaken(&text);
        };
        match runs.start(&disk.results, found, sent.name.as_deref()) {
            Ok(id) => answer(StatusCode::CREATED, &json!({ "id": id })),
            Err(error @ ServedStartError::Busy(_)) => trouble(
                StatusCode::CONFLICT,
                &error.to_string(),
                Some("stop that run, or wait for its end"),
            ),
            Err(error @ ServedStartError::System { .. }) => {
                trouble(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string(), None)
            }
        }
    };
    state.disk.with(work).await
}

async fn stop(State(state): State<ServedState>, Path(id): Path<String>) -> Response {
    if state.runs.stop(&id) {
        accepted()
    } else {
        no_run()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    search: String,
}

async fn list(
    State(state): State<ServedState>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Response> {
    let found = state
        .disk
        .with(move |disk| disk.results.list(&wanted.search))
        .await?;
    found
        .map(|found| answer(StatusCode::OK, &found))
        .map_err(|error| unreadable(&error))
}

fn unreadable(error: &std::io::Error) -> Response {
    let what = format!("cannot read the results folder: {error}");
    trouble(StatusCode::INTERNAL_SERVER_ERROR, &what, None)
}

async fn report(
    State(state): State<ServedState>,
    Path(id): Path<String>,
) -> Result<Response, Response> {
    let page = state
        .disk
        .with(move |disk| disk.results.report(&id))
        .await?;
    Ok(page.map_or_else(no_result, page_of_result))
}

async fn experiment(
    State(state): State<ServedState>,
    Path(id): Path<String>,
) -> Result<Response, Response> {
    let text = state
        .disk
        .with(move |disk| disk.results.experiment(&id))
        .await?;
    Ok(text.map_or_else(no_result, |text| {
        of(StatusCode::OK, "text/plain; charset=utf-8", text)
    }))
}

/// A page rendered from results, which may contain data from other people.
fn page_of_result(page: String) -> Response {
    let headers = [
        (CONTENT_SECURITY_POLICY, REPORT_POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (
        headers,
        of(StatusCode::OK, "text/html; charset=utf-8", page),
    )
        .into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compared {
    results: Vec<String>,
}

async fn compare(
    State(state): State<ServedState>,
    JsonBody(sent): JsonBody<Compared>,
) -> Result<Response, Response> {
    let Compared { results } = sent;
    if !(2..=COMPARED_MAX).contains(&results.len()) {
        let what = format!("a comparison needs 2 to {COMPARED_MAX} results");
        return Err(trouble(StatusCode::UNPROCESSABLE_ENTITY, &what, None));
    }
    let ids = results.clone();
    let known = state
        .disk
        .with(move |disk| ids.iter().all(|id| disk.results.find(id).is_some()))
        .await?;
    Ok(if known {
        link(&state.links, LinkedPage::Comparison(results))
    } else {
        no_result()
    })
}

async fn history(
    State(state): State<ServedState>,
    JsonBody(wanted): JsonBody<Wanted>,
) -> Result<Response, Response> {
    let found = state
        .disk
        .with(move |disk| disk.results.list(&wanted.search))
        .await?;
    Ok(match found {
        Ok(found) if !found.is_empty() => {
            let ids = found.into_iter().map(|entry| entry.id).collect();
            link(&state.links, LinkedPage::History(ids))
        }
        Ok(_) => no_result(),
        Err(error) => unreadable(&error),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Viewed {
    report: String,
}

async fn view(
    State(state): State<ServedState>,
    JsonBody(sent): JsonBody<Viewed>,
) -> Result<Response, Response> {
    let id = sent.report.clone();
    let known = state
        .disk
        .with(move |disk| disk.results.find(&id).is_some())
        .await?;
    Ok(if known {
        link(&state.links, LinkedPage::Report(sent.report))
    } else {
        no_result()
    })
}

fn link(links: &PageLinks, page: LinkedPage) -> Response {
    match links.make(page) {
        Ok(key) => answer(
            StatusCode::CREATED,
            &json!({ "page": format!("/view/{key}") }),
        ),
        Err(error) => trouble(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string(), None),
    }
}

/// The page that a link opens; the link's key replaces the token.
async fn linked(
    State(state): State<ServedState>,
    Extension(place): Extension<Arc<Place>>,
    Path(key): Path<String>,
) -> Result<Response, Response> {
    let Some(page) = state.links.find(&key) else {
        let advice =
            Some("open the page from the list of results again: links expire after ten minutes");
        return Err(trouble(
            StatusCode::NOT_FOUND,
            "this link has expired",
            advice,
        ));
    };
    place.give_up();
    let made = state.disk.with(move |disk| match page {
        LinkedPage::Report(id) => disk.results.report(&id),
        LinkedPage::Comparison(ids) => disk.results.comparison(&ids),
        LinkedPage::History(ids) => disk.results.history(&ids),
    });
    made.await
        .map(|page| page.map_or_else(no_result, page_of_result))
}
