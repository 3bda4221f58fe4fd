"use strict";
// Follows what changes: asks for the same page every so many seconds and takes over what differs. Nothing is reloaded, so
// that marks, focus and scrolling stay as they are.
(() => {
  const AFTER_FAILURE = 10000;
  const main = document.querySelector("main[data-follow]");
  if (!main) return;
  const EVERY = 1000 * main.dataset.every;

  const take = (fresh) => {
    const isNew = [...fresh.querySelectorAll("[data-rows]")].some(
      (rows) => !main.querySelector(`[data-rows="${CSS.escape(rows.dataset.rows)}"]`));
    if (isNew) return location.reload();  // the first run has arrived
    for (const part of main.querySelectorAll("[data-part]")) {
      const other = fresh.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
      if (!other) continue;
      if (part.innerHTML !== other.innerHTML) part.replaceChildren(...document.importNode(other, true).childNodes);
    }
    for (const rows of main.querySelectorAll("[data-rows]")) {
      const others = fresh.querySelector(`[data-rows="${CSS.escape(rows.dataset.rows)}"]`);
      if (!others) continue;
      [...others.children].forEach((row, place) => {
        const known = [...rows.children].some((each) => each.dataset.row === row.dataset.row);
        if (!known) rows.insertBefore(document.importNode(row, true), rows.children[place] || null);
      });
    }
    main.dataset.follow = fresh.dataset.follow;
  };

  const ask = async () => {
    let wait = EVERY;
    if (!document.hidden) {
      const line = document.getElementById("connection");
      try {
        const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
        if (answer.status === 401) return location.reload();
        if (!answer.ok) throw new Error(answer.statusText);
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main[data-follow]");
        if (fresh) take(fresh);
        line.textContent = "";
      } catch {
        line.textContent = "The collector does not answer; what is shown is not up to date.";
        wait = AFTER_FAILURE;
      }
    }
    if (main.dataset.follow === "yes") setTimeout(ask, wait);
  };
  if (main.dataset.follow === "yes") setTimeout(ask, EVERY);
})();
