//! The page in a real browser: the demo's first storm arrives without a reload, is read, judged and
//! found again; in the dark, on a phone, with every name and contrast that a reader needs; without
//! an error on the console and without a request to anybody else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use thirtyfour::prelude::*;

use crate::support::http::get;
use crate::support::process::{Program, free_port, squall, wait_until};

/// From the start of the demo to its first storm on the page: a minute is promised, and a machine
/// that builds meanwhile gets more.
const STORM_WAIT: Duration = Duration::from_secs(180);
/// For a change of the page after what causes it.
const CHANGE_WAIT: Duration = Duration::from_secs(20);

/// For the driver to start.
const DRIVER_WAIT: Duration = Duration::from_secs(60);
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What every page is looked at for: a text of each fault.
const FAULTS: &str = r#"
const faults = [];
const shown = e => !e.closest('.sr-only, [hidden], noscript') && e.getClientRects().length > 0;
const nameOf = e => (e.getAttribute('aria-label') || e.textContent || '').trim();
if (document.documentElement.lang !== 'en') faults.push('no language');
if (document.querySelectorAll('main').length !== 1) faults.push('not one main');
if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
document.querySelectorAll('a, button').forEach(e => {
  if (!e.hidden && !nameOf(e)) faults.push('no name: ' + e.outerHTML.slice(0, 90)); });
document.querySelectorAll('img').forEach(e => {
  if (!e.alt) faults.push('no alt: ' + e.src); });
document.querySelectorAll('input, select, textarea').forEach(e => {
  if (!e.labels || !e.labels.length) faults.push('no label: ' + e.name); });
document.querySelectorAll('th').forEach(e => {
  if (!e.scope) faults.push('no scope: ' + e.textContent); });
const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
ids.forEach((id, n) => { if (ids.indexOf(id) !== n) faults.push('id twice: ' + id); });
document.querySelectorAll('[aria-labelledby]').forEach(e => {
  if (e.textContent.trim() && !document.getElementById(e.getAttribute('aria-labelledby')))
    faults.push('labelled by nothing: ' + e.getAttribute('aria-labelledby')); });
if (document.documentElement.scrollWidth > window.innerWidth + 1)
  faults.push('wider than the window: ' + document.documentElement.scrollWidth);
const part = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4); };
const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
const numbers = text => (text.match(/[\d.]+/g) || []).map(Number);
const behind = e => {
  for (; e; e = e.parentElement) {
    const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0.99) return c;
  }
  return [255, 255, 255];
};
document.querySelectorAll('body *').forEach(e => {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || !shown(e) || e.closest('svg, option')) return;
  const a = light(numbers(getComputedStyle(e).color)), b = light(behind(e));
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5)
    faults.push('contrast ' + contrast.toFixed(2) + ': ' + e.tagName + ' ' + e.textContent.trim().slice(0, 40));
});
const own = location.origin + '/';
performance.getEntriesByType('resource').forEach(r => {
  if (!r.name.startsWith(own)) faults.push('another host: ' + r.name); });
return faults;
"#;

/// Whether every picture is there, those further down too.
const ALL_DRAWN: &str = "const shown = [...document.images].filter(i => i.getClientRects().length); \
                         shown.forEach(i => { i.loading = 'eager'; }); \
                         const fits = i => i.currentSrc.includes('width=380') === innerWidth <= 640; \
                         return shown.every(i => i.complete && i.naturalWidth > 0 \
                         && (!i.closest('picture') || fits(i)))";

/// A browser and the program that drives it.
struct Browser {
    driver: WebDriver,
    driver_port: u16,
    http: reqwest::Client,
    pictures: PathBuf,
    _program: Program,
}

impl Browser {
    async fn start(folder: &Path) -> Self {
        let driver_port = free_port();
        let mut command = std::process::Command::new("chromedriver");
        command.arg(format!("--port={driver_port}"));
        let program = Program::start("chromedriver", folder, &mut command);
        // The client of the driver wants a provider of TLS, even where it speaks none.
        drop(rustls::crypto::ring::default_provider().install_default());
        // The driver speaks no HTTP/1.0, so the plain requests of the other tests are none for it.
        let http = reqwest::Client::new();
        let status = format!("http://127.0.0.1:{driver_port}/status");
        let answers = tokio::time::timeout(DRIVER_WAIT, async {
            while !http.get(&status).send().await.is_ok_and(|answer| answer.status().is_success()) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        assert!(answers.await.is_ok(), "chromedriver does not answer");
        let mut wanted = DesiredCapabilities::chrome();
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        for argument in [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--window-size=1280,1000",
            &profile,
        ] {
            wanted.add_arg(argument).unwrap();
        }
        wanted.set("goog:loggingPrefs", json!({"browser": "ALL"})).unwrap();
        let driver =
            WebDriver::new(format!("http://127.0.0.1:{driver_port}"), wanted).await.unwrap();
        // Kept after the test, for people to look at.
        let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
        std::fs::create_dir_all(&pictures).unwrap();
        Self { driver, driver_port, http, pictures, _program: program }
    }

    /// Sends the driver what no library knows.
    async fn ask(&self, path: &str, body: &Value) -> Value {
        let session = self.driver.session_id();
        let url = format!("http://127.0.0.1:{}/session/{session}/{path}", self.driver_port);
        let answer = self.http.post(url).json(body).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {text}");
        serde_json::from_str::<Value>(&text).unwrap()["value"].take()
    }

    async fn value(&self, script: &str) -> Value {
        self.driver.execute(script, Vec::new()).await.unwrap().json().clone()
    }

    /// Waits until a script says true.
    async fn until(&self, what: &str, limit: Duration, script: &str) {
        let asked = tokio::time::timeout(limit, async {
            while self.value(script).await != Value::Bool(true) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        let page = || async { self.driver.source().await.unwrap_or_default() };
        assert!(asked.await.is_ok(), "waited {limit:?} in vain until {what}\n{}", page().await);
    }

    /// Looks at the page for faults in the light, in the dark and on a phone, and keeps pictures.
    async fn look(&self, name: &str) {
        for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)] {
            let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
            self.command("Emulation.setEmulatedMedia", json!({"features": features})).await;
            let size =
                json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
            self.command("Emulation.setDeviceMetricsOverride", size).await;
            self.until("every picture is drawn", CHANGE_WAIT, ALL_DRAWN).await;
            let faults = self.value(FAULTS).await;
            assert_eq!(faults, json!([]), "{name}, {scheme}, {width} px");
            self.keep_whole(&format!("{name}-{scheme}-{width}"), width).await;
        }
        self.command("Emulation.clearDeviceMetricsOverride", json!({})).await;
        self.command("Emulation.setEmulatedMedia", json!({"features": []})).await;
    }

    /// Sends the browser a command of its own protocol.
    async fn command(&self, command: &str, parameters: Value) -> Value {
        self.ask("goog/cdp/execute", &json!({"cmd": command, "params": parameters})).await
    }

    /// Keeps a picture of the whole page in this width.
    async fn keep_whole(&self, name: &str, width: u32) {
        let tall = self.value("return document.documentElement.scrollHeight").await;
        let size = json!({"width": width, "height": tall, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", size).await;
        self.until("every picture is drawn", CHANGE_WAIT, ALL_DRAWN).await;
        self.keep(name).await;
    }

    /// Keeps a picture of what the window shows.
    async fn keep(&self, name: &str) {
        let parameters = json!({"format": "png"});
        let picture = self.command("Page.captureScreenshot", parameters).await;
        let bytes = base64(picture["data"].as_str().unwrap());
        std::fs::write(self.pictures.join(format!("{name}.png")), bytes).unwrap();
    }

    /// Presses a key where the focus is.
    async fn press(&self, key: Key) {
        self.driver.action_chain().send_keys(key).perform().await.unwrap();
    }

    /// Fails on anything that the console calls an error or a warning.
    async fn expect_quiet_console(&self) {
        let log = self.ask("se/log", &json!({"type": "browser"})).await;
        let loud: Vec<&Value> = log
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| ["SEVERE", "WARNING"].contains(&entry["level"].as_str().unwrap()))
            .collect();
        assert!(loud.is_empty(), "{loud:#?}");
    }
}

fn base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| -> u32 {
        let at = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        u32::try_from(at.iter().position(|known| *known == byte).unwrap()).unwrap()
    };
    let digits: Vec<u32> = text.trim_end_matches('=').bytes().map(value).collect();
    let mut bytes = Vec::new();
    for four in digits.chunks(4) {
        let held = four.iter().fold(0, |held, digit| (held << 6) | digit) << (6 * (4 - four.len()));
        bytes.extend(&held.to_be_bytes()[1..four.len()]);
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_storm_is_seen_read_judged_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut command = squall();
    command.args(["demo", &format!("--web.listen-address=127.0.0.1:{port}")]);
    let _demo = Program::start("demo", folder.path(), &mut command);
    wait_until("the page answers", Duration::from_secs(60), || {
        get(port, "/").is_some_and(|answer| answer.status == 200)
    });
    let browser = Browser::start(folder.path()).await;
    let top = format!("http://127.0.0.1:{port}/");
    browser.command("Emulation.setScrollbarsHidden", json!({"hidden": true})).await;
    browser.driver.goto(&top).await.unwrap();
    browser.value("window.neverReloaded = true").await;
    let is_live = "return document.getElementById('live').classList.contains('on')";
    browser.until("the page is live", CHANGE_WAIT, is_live).await;

    // It comes by itself.
    let fires = "return /storms? (is|are) firing/.test(document.querySelector('h1').textContent) \
                 && !!document.querySelector('.card a[href^=\"incidents/\"]') \
                 && !!document.querySelector('#list a[href^=\"incidents/\"]')";
    browser.until("the first storm is on the page", STORM_WAIT, fires).await;
    assert_eq!(browser.value("return window.neverReloaded === true").await, json!(true));
    browser.look("now").await;

    // The first stop of the keyboard leads past the navigation.
    browser.press(Key::Tab).await;
    let skips = "const a = document.activeElement; \
                 return a.className === 'skip' && a.getBoundingClientRect().left >= 0";
    browser.until("the way past the navigation is shown", CHANGE_WAIT, skips).await;
    browser.press(Key::Enter).await;
    let is_past = "return document.activeElement.id === 'main'";
    browser.until("the focus is on the content", CHANGE_WAIT, is_past).await;

    // It is opened, from the keyboard, and read.
    let card = browser.driver.find(By::Css(".card a[href^='incidents/']")).await.unwrap();
    card.send_keys(Key::Enter).await.unwrap();
    let is_read = "return location.pathname.startsWith('/incidents/') \
                   && document.querySelectorAll('#advice li').length > 0 \
                   && document.querySelectorAll('#evidence li').length > 0";
    browser.until("the incident is open", CHANGE_WAIT, is_read).await;
    let page = browser.driver.current_url().await.unwrap().to_string();
    browser.look("incident").await;

    // It names who is to blame, and not who only suffers.
    let blamed = "return /checkout 9\\d %|checkout 100 %/.test( \
                  document.querySelector('#matches').textContent.replace(/\\s+/g, ' '))";
    browser.until("the caller is named", CHANGE_WAIT, blamed).await;

    // It is judged.
    let note = browser.driver.find(By::Css("#feedback textarea")).await.unwrap();
    note.send_keys("it was the new checkout <b>client</b>").await.unwrap();
    browser
        .driver
        .find(By::Css("#feedback button[value=true]"))
        .await
        .unwrap()
        .click()
        .await
        .unwrap();
    let is_noted = "return /Noted/.test(document.getElementById('feedback-outcome').textContent) \
                    && /checkout <b>client/.test(document.getElementById('feedback-said').textContent)";
    browser.until("the feedback is shown", CHANGE_WAIT, is_noted).await;

    // It is found again by the filters, whose choice is in the address.
    browser.driver.goto(&top).await.unwrap();
    let kind = browser
        .value("return document.querySelector('#list .chip').className.split(' ').pop()")
        .await;
    let kind = kind.as_str().unwrap();
    browser
        .value(&format!(
            "const s = document.querySelector('select[name=classification]'); s.value = '{kind}'; \
             s.dispatchEvent(new Event('change'))"
        ))
        .await;
    let is_filtered = format!(
        "return location.search === '?classification={kind}' \
                               && document.querySelectorAll('#list tbody tr').length > 0"
    );
    browser.until("the list is filtered", CHANGE_WAIT, &is_filtered).await;
    browser.driver.goto(&format!("{top}?q=nothing-is-called-so")).await.unwrap();
    let is_empty = "return /No incident fits/.test(document.querySelector('#list').textContent)";
    browser.until("nothing fits", CHANGE_WAIT, is_empty).await;

    // The other zone, the pictures included, and back.
    let elsewhere = json!({"timezoneId": "Asia/Kolkata"});
    browser.command("Emulation.setTimezoneOverride", elsewhere).await;
    browser.driver.goto(&page).await.unwrap();
    let zone = browser.driver.find(By::Id("zone")).await.unwrap();
    let time = "return document.querySelector('.facts time').textContent";
    let utc = browser.value(time).await;
    zone.click().await.unwrap();
    assert!(browser.value(time).await.as_str().is_some_and(|shown| shown.ends_with("+05:30")));
    let follow = "return [...document.querySelectorAll('figure img')] \
                  .every(i => i.src.endsWith('&utc_offset=330'))";
    browser.until("the pictures follow the zone", CHANGE_WAIT, follow).await;
    browser.until("every picture is drawn", CHANGE_WAIT, ALL_DRAWN).await;
    zone.click().await.unwrap();
    assert_eq!(browser.value(time).await, utc);
    let back = "return ![...document.images].some(i => i.src.includes('utc_offset'))";
    browser.until("the pictures are in UTC again", CHANGE_WAIT, back).await;
    browser.command("Emulation.setTimezoneOverride", json!({"timezoneId": ""})).await;

    // A chosen theme, the pictures included.
    let theme = browser.driver.find(By::Id("theme")).await.unwrap();
    for chosen in ["light", "dark"] {
        theme.click().await.unwrap();
        browser.until("every picture is drawn", CHANGE_WAIT, ALL_DRAWN).await;
        let follows = format!(
            "return document.documentElement.dataset.theme === '{chosen}' && \
             [...document.querySelectorAll('figure img')].every(i => i.src.endsWith('&theme={chosen}'))"
        );
        browser.until("the pictures follow", CHANGE_WAIT, &follows).await;
        assert_eq!(browser.value(FAULTS).await, json!([]), "{chosen} by choice");
        browser.keep_whole(&format!("incident-chosen-{chosen}"), 1280).await;
    }
    browser.command("Emulation.clearDeviceMetricsOverride", json!({})).await;
    theme.click().await.unwrap();
    let is_auto = "return ![...document.images].some(i => i.src.includes('theme='))";
    browser.until("the theme is the system's again", CHANGE_WAIT, is_auto).await;

    for (path, name) in [("dependencies", "dependencies"), ("schedules", "schedules")] {
        browser.driver.goto(&format!("{top}{path}")).await.unwrap();
        browser
            .until("it is there", CHANGE_WAIT, "return !!document.querySelector('tbody tr')")
            .await;
        browser.look(name).await;
        browser.driver.find(By::Css("tbody a")).await.unwrap().click().await.unwrap();
        browser.until("it opens", CHANGE_WAIT, "return !!document.querySelector('.crumbs')").await;
        browser.look(&format!("{name}-one")).await;
    }

    // When more of it has come; the pictures in README.md are these.
    browser.driver.goto(&page).await.unwrap();
    let has_waves = "return [...document.querySelectorAll('#numbers caption')] \
                     .some(c => c.textContent === 'Waves' && c.parentNode.tBodies[0].rows.length >= 5)";
    browser.until("five waves are told", STORM_WAIT, has_waves).await;
    browser.until("every picture is drawn", CHANGE_WAIT, ALL_DRAWN).await;
    browser.look("incident-later").await;
    browser.keep("incident-window").await;
    let id = page.rsplit('/').next().unwrap();
    let plot = get(port, &format!("/api/v1/incidents/{id}/plot.svg")).expect("a picture");
    assert_eq!(plot.status, 200);
    std::fs::write(browser.pictures.join("incident.svg"), plot.body).unwrap();

    // Without a script it is read and found all the same.
    browser.command("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    browser.driver.goto(&page).await.unwrap();
    let reads = "return document.querySelectorAll('#advice li').length > 0 \
                 && document.querySelector('figure img').naturalWidth > 0 \
                 && /incidents feedback/.test(document.querySelector('noscript code').textContent) \
                 && document.getElementById('feedback').hidden && document.getElementById('zone').hidden";
    browser.until("it is read without a script", CHANGE_WAIT, reads).await;
    browser.keep_whole("incident-no-script", 1280).await;
    browser.command("Emulation.clearDeviceMetricsOverride", json!({})).await;
    browser.driver.goto(&top).await.unwrap();
    let search = browser.driver.find(By::Css("input[name=q]")).await.unwrap();
    search.send_keys("nothing-is-called-so").await.unwrap();
    search.send_keys(Key::Enter).await.unwrap();
    browser.until("nothing fits", CHANGE_WAIT, is_empty).await;

    browser.expect_quiet_console().await;
    browser.driver.clone().quit().await.unwrap();
}
