// What only a script can do on a page that reads without one: show changes as they come, times in
// another zone, another theme, and send feedback. Text is only ever set as text.
(function () {
  "use strict";
  var root = document.body.dataset.root || "./";
  var byId = function (id) { return document.getElementById(id); };
  var stored = function (key, value) {
    try {
      if (value === undefined) { return localStorage.getItem(key); }
      localStorage.setItem(key, value);
    } catch (e) { /* no storage: chosen for this page alone */ }
    return value || null;
  };

  // Theme: auto, light, dark.
  var themes = ["auto", "light", "dark"];
  var theme = stored("squall.theme") || "auto";
  var themeButton = byId("theme");
  // A picture knows the theme of the system and UTC, and has to be asked for in any other.
  var zone = stored("squall.zone") || "utc";
  var askForPictures = function (within) {
    var wanted = theme === "auto" ? "" : "&theme=" + theme;
    if (zone !== "utc") {
      // As it was when it happened: summer time may have ended since.
      var shown = within.querySelector(".facts time[datetime]");
      var at = shown ? new Date(shown.getAttribute("datetime")) : new Date();
      wanted = "&utc_offset=" + -at.getTimezoneOffset() + wanted;
    }
    within.querySelectorAll("img[src*='plot.svg?'], source[srcset*='plot.svg?']").forEach(function (element) {
      var name = element.hasAttribute("srcset") ? "srcset" : "src";
      var had = element.getAttribute(name);
      var asked = had.replace(/&(theme|utc_offset)=[-\w]+/g, "") + wanted;
      if (asked !== had) { element.setAttribute(name, asked); }
    });
  };
  var showTheme = function () {
    if (theme === "auto") { delete document.documentElement.dataset.theme; }
    else { document.documentElement.dataset.theme = theme; }
    askForPictures(document);
    themeButton.textContent = "Theme: " + theme;
  };
  themeButton.hidden = false;
  themeButton.addEventListener("click", function () {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    stored("squall.theme", theme);
    showTheme();
  });
  showTheme();

  // Time zone: UTC, as it was written, or that of the reader.
  var zoneButton = byId("zone");
  var localZone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  var two = function (n) { return (n < 10 ? "0" : "") + n; };
  var showTimes = function (within) {
    within.querySelectorAll("time[datetime]").forEach(function (element) {
      var at = new Date(element.getAttribute("datetime"));
      if (isNaN(at)) { return; }
      if (zone === "utc") {
        element.textContent = at.toISOString().slice(0, 19).replace("T", " ") + " UTC";
      } else {
        var minutes = -at.getTimezoneOffset();
        var sign = minutes < 0 ? "-" : "+";
        var size = Math.abs(minutes);
        element.textContent = at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" +
          two(at.getDate()) + " " + two(at.getHours()) + ":" + two(at.getMinutes()) + ":" +
          two(at.getSeconds()) + " " + sign + two(Math.floor(size / 60)) + ":" + two(size % 60);
      }
    });
  };
  var showZone = function () {
    zoneButton.textContent = zone === "utc" ? "Times: UTC" : "Times: local";
    byId("zonename").textContent = zone === "utc" ? "UTC" : localZone;
    showTimes(document);
    askForPictures(document);
  };
  zoneButton.hidden = false;
  zoneButton.addEventListener("click", function () {
    zone = zone === "utc" ? "local" : "utc";
    stored("squall.zone", zone);
    showZone();
  });
  showZone();

  // Live: an event says that something changed; the page is asked again and its live parts put in.
  var live = byId("live");
  var isLive = function (yes) {
    live.hidden = false;
    live.textContent = yes ? "live" : "not live";
    live.classList.toggle("on", yes);
  };
  var asked = false;
  var again = false;
  var refresh = function () {
    if (asked) { again = true; return; }
    asked = true;
    fetch(location.href, { headers: { Accept: "text/html" } }).then(function (answer) {
      return answer.ok ? answer.text() : null;
    }).then(function (text) {
      if (!text) { return; }
      var fresh = new DOMParser().parseFromString(text, "text/html");
      // As the reader wants it, before it is compared: what has not changed stays untouched.
      showTimes(fresh);
      askForPictures(fresh);
      document.querySelectorAll("[data-live][id]").forEach(function (old) {
        var found = fresh.getElementById(old.id);
        if (!found || found.isEqualNode(old)) { return; }
        var active = old.contains(document.activeElement) ? document.activeElement : null;
        // Nothing is taken away under the hands of somebody who types.
        if (active && /^(INPUT|TEXTAREA|SELECT)$/.test(active.tagName)) { return; }
        var opened = [];
        old.querySelectorAll("details[open][id]").forEach(function (d) { opened.push(d.id); });
        var put = document.importNode(found, true);
        old.replaceWith(put);
        opened.forEach(function (id) { var d = byId(id); if (d) { d.open = true; } });
        if (active) {
          var same = active.id ? byId(active.id) : Array.from(put.querySelectorAll("a[href]")).find(
            function (link) { return link.getAttribute("href") === active.getAttribute("href"); });
          if (same) { same.focus({ preventScroll: true }); }
        }
      });
    }).catch(function () { isLive(false); }).then(function () {
      // At most one a second, however many events come.
      setTimeout(function () { asked = false; if (again) { again = false; refresh(); } }, 1000);
    });
  };
  var say = function (text) { byId("said").textContent = text; };
  if (window.EventSource) {
    var events = new EventSource(root + "api/v1/events");
    var was = false;
    events.onopen = function () {
      isLive(true);
      // What happened while the line was down has no event.
      if (was) { refresh(); }
      was = true;
    };
    events.onerror = function () { isLive(false); };
    ["opened", "fired", "revised", "resolved", "reopened", "withdrawn", "missed"].forEach(function (name) {
      events.addEventListener(name, function (event) {
        refresh();
        if (name !== "fired" && name !== "resolved") { return; }
        try {
          var incident = JSON.parse(event.data);
          say(incident.dependency.slice(0, 80) + (name === "fired" ? " is firing" : " is resolved"));
        } catch (e) { /* no incident in it */ }
      });
    });
    window.addEventListener("pagehide", function () { events.close(); });
    window.addEventListener("pageshow", function (event) { if (event.persisted) { location.reload(); } });
  }
  // Pictures of what is open grow between events too.
  if (document.querySelector("[data-open]")) {
    setInterval(function () { if (!document.hidden) { refresh(); } }, 5000);
  }

  // Feedback: JSON, so that no other site's form can send it.
  var form = byId("feedback");
  if (form) {
    form.hidden = false;
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      var outcome = byId("feedback-outcome");
      var pressed = event.submitter ? event.submitter.value : "true";
      var body = { verdict: pressed, note: form.elements.note.value };
      if (form.elements.class.value) { body.class = form.elements.class.value; }
      outcome.textContent = "Sending…";
      fetch(form.getAttribute("action"), {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body)
      }).then(function (answer) {
        return answer.json();
      }).then(function (answer) {
        if (answer.status !== "success") { throw new Error(answer.error); }
        outcome.textContent = "Noted. Thank you.";
        if (document.activeElement && form.contains(document.activeElement)) { document.activeElement.blur(); }
        refresh();
      }).catch(function (error) {
        outcome.textContent = "Not noted: " + error.message;
      });
    });
  }

  // Filters apply as they are chosen; the button stays for those who type.
  document.querySelectorAll("form.filters select").forEach(function (select) {
    select.addEventListener("change", function () { select.form.requestSubmit(); });
  });
  // Empty fields have no place in an address that people share.
  document.querySelectorAll("form.filters").forEach(function (filters) {
    filters.addEventListener("formdata", function (event) {
      Array.from(event.formData.entries()).forEach(function (entry) {
        if (entry[1] === "") { event.formData.delete(entry[0]); }
      });
    });
  });
})();
