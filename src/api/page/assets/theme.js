// Runs before the first paint, so that a chosen theme does not flash.
(function () {
  "use strict";
  try {
    var theme = localStorage.getItem("squall.theme");
    if (theme === "light" || theme === "dark") {
      document.documentElement.dataset.theme = theme;
    }
  } catch (e) { /* no storage: the system's theme */ }
})();
