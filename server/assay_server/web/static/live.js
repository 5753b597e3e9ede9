// Replaces what has changed on a page while it is watched. Without it, the page works and is reloaded by hand.
"use strict";
(() => {
  const stream = document.body.dataset.stream;
  const release = document.body.dataset.release;
  const told = document.getElementById("told");

  function tell(text) {
    told.textContent = text + " ";
    const again = document.createElement("a");
    again.href = location.href;
    again.textContent = "Reload the page";
    told.append(again);
    told.hidden = false;
  }

  // What somebody opened stays open, and the focus stays where it was.
  function keeping(element, replace) {
    const open = new Map([...element.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
    const at = document.activeElement;
    const inside = at && element.contains(at);
    const mark = inside && [at.tagName, at.id, at.getAttribute("formaction"), at.getAttribute("value"), at.getAttribute("href")].join();
    const now = replace();
    for (const each of now.querySelectorAll("details[id]")) {
      if (open.has(each.id)) each.open = open.get(each.id);
    }
    if (!inside) return;
    const same = [...now.querySelectorAll("a, button, summary, pre, [tabindex]")].find((each) =>
      [each.tagName, each.id, each.getAttribute("formaction"), each.getAttribute("value"), each.getAttribute("href")].join() === mark);
    (same || document.getElementById("content")).focus({ preventScroll: true });
  }

  function change(news) {
    if (news.release !== release) {
      tell("The server was upgraded.");
      source.close();
      return;
    }
    for (const [name, html] of Object.entries(news.regions || {})) {
      const region = document.querySelector(`[data-region="${name}"]`);
      if (region) keeping(region, () => { region.innerHTML = html; return region; });
    }
    for (const [id, html] of Object.entries(news.pieces || {})) {
      const piece = document.getElementById(id);
      if (piece) keeping(piece, () => { piece.outerHTML = html; return document.getElementById(id); });
    }
  }

  const source = new EventSource(stream);
  source.addEventListener("change", (event) => change(JSON.parse(event.data)));
  source.addEventListener("reload", () => { tell("The server was upgraded."); source.close(); });
  source.addEventListener("over", () => { tell("Your session has ended, or your role was changed."); source.close(); });
  source.addEventListener("open", () => { told.hidden = true; document.body.dataset.live = "yes"; });
  source.addEventListener("error", () => {
    document.body.dataset.live = "no";
    if (source.readyState === EventSource.CLOSED) tell("This page is not updated any more.");
    else tell("The server does not answer; trying again.");
  });
})();
