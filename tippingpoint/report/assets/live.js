// Follows a run in progress: asks for this page again each second, or as often as the server can make it, and takes over
// what differs. Sections stay where they are; what the reader has unfolded stays unfolded.
const sources = new Map();
function takeOver(fresh) {
  const before = new Map([...document.querySelectorAll("main > section")].map(section => [section.id, section]));
  const main = document.querySelector("main");
  for (const section of fresh.querySelectorAll("main > section")) {
    const known = before.get(section.id), source = section.innerHTML;
    before.delete(section.id);
    if (known && sources.get(section.id) === source) { main.append(known); continue; }
    sources.set(section.id, source);
    const unfolded = known ? [...known.querySelectorAll("details")].map(each => each.open) : [];
    const taken = document.importNode(section, true);
    [...taken.querySelectorAll("details")].forEach((each, place) => { each.open = unfolded[place] ?? each.open; });
    main.append(taken);
    makeSortable(taken);
    if (known) known.remove();
  }
  for (const gone of before.values()) gone.remove();
  document.querySelector(".masthead").replaceWith(document.importNode(fresh.querySelector(".masthead"), true));
  for (const name of Object.keys(doc)) delete doc[name];
  Object.assign(doc, JSON.parse(fresh.getElementById("document").textContent));
  again();
}

const quiet = Object.assign(document.createElement("p"), { className: "soft", textContent: "No answer. What is shown is not up to date." });
quiet.setAttribute("role", "status");
async function follow() {
  let wait = 1000;
  if (!document.hidden) {
    const began = performance.now();
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", credentials: "same-origin" });
      if (!answer.ok) throw new Error(answer.statusText);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const at = scrollY;
      takeOver(fresh);
      scrollTo(scrollX, at);
      if (fresh.body.dataset.live !== "yes") { document.querySelector(".colophon").replaceWith(document.importNode(fresh.querySelector(".colophon"), true)); return; }
      quiet.remove();
      wait = Math.max(wait - (performance.now() - began), 4 * (performance.now() - began));
    } catch {
      document.querySelector(".masthead").append(quiet);
      wait = 5000;
    }
  }
  setTimeout(follow, wait);
}
setTimeout(follow, 1000);
