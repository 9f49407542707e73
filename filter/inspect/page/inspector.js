// The inspector's page: what is shown follows the address, the list follows the filters, and keys lead through both.
import { $, addressed, el, get, signIn } from "./common.js";
import { compare, show } from "./exchange.js";
import { enter, openFirst, refresh, select } from "./list.js";

// open shows what the address names.
async function open() {
  const [id, other] = addressed();
  select(id);
  $("token").hidden = true;
  if (!id) return;

  try {
    const x = await get("records/" + encodeURIComponent(id));
    const before = other && await get("records/" + encodeURIComponent(other));
    // Another one may have been chosen since.
    if (addressed()[0] !== id || addressed()[1] !== other) return;
    $("main").scrollTop = 0;
    if (before) compare(before, x);
    else show(x);
  } catch (err) {
    $("main").replaceChildren(el("p", { class: "bad" }, err.message));
  }
  toMain();
}

function toMain() {
  $("main").focus({ preventScroll: true });
  // Where the list is above it, and not beside it. The mark of a comparison keeps its place.
  if (!$("main").querySelector(".differs")) $("main").scrollIntoView();
}

const search = $("filters").elements.q;
let typed = 0;

search.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(refresh, 150);
});
search.addEventListener("keydown", (e) => {
  if (e.key === "ArrowDown") enter();
  else if (e.key === "Escape" && search.value) {
    search.value = "";
    refresh();
  } else if (e.key === "Escape") enter();
  else return;
  e.preventDefault();
  e.stopPropagation();
});
$("filters").addEventListener("change", refresh);
$("filters").addEventListener("submit", (e) => {
  e.preventDefault();
  openFirst();
});
$("sign-in").addEventListener("submit", (e) => {
  e.preventDefault();
  signIn(e.target.elements.token.value);
  refresh().then(open);
});

// An address that is shown already does not change by a click.
$("list").addEventListener("click", (e) => {
  const a = e.target.closest("a");
  if (a && a.hash === location.hash) toMain();
});
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey || e.target.matches("input:not([type=checkbox]), select")) return;
  if (e.key === "/") {
    e.preventDefault();
    search.focus();
    search.select();
  } else if (e.key === "Escape") enter();
});

window.addEventListener("hashchange", open);
setInterval(() => {
  if ($("filters").elements.follow.checked && !document.hidden && $("sign-in").hidden) refresh();
}, 2000);
refresh().then(open);
