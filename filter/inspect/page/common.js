// What the parts of the page share. All texts of records are set as text, never as markup.

export const $ = (id) => document.getElementById(id);

// el makes an element. Attributes that are functions are listeners.
export function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") e.addEventListener(key, value);
    else if (value !== undefined && value !== "" && value !== false) e.setAttribute(key, value === true ? "" : value);
  }

  e.append(...children.filter((c) => c !== undefined && c !== ""));
  return e;
}

// ---- the server

let token = sessionStorage.getItem("token") || "";

export function signIn(given) {
  token = given;
  sessionStorage.setItem("token", token);
}

async function ask(path) {
  const answer = await fetch(path, token ? { headers: { Authorization: "Bearer " + token } } : {});
  $("sign-in").hidden = answer.status !== 401;
  if (answer.status === 401) throw new Error("Enter the token above.");
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer;
}

export const get = async (path) => (await ask(path)).json();

// download saves a file. A link alone would not send the token.
export async function download(path, name) {
  const url = URL.createObjectURL(await (await ask(path)).blob());
  el("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

// ---- addresses: the fragment is an exchange, or two that are compared

export const address = (...ids) => "#" + ids.map(encodeURIComponent).join("|");

export function addressed() {
  try {
    return location.hash.slice(1).split("|").map(decodeURIComponent);
  } catch {
    return [""];
  }
}

// ---- texts

export const millis = (us) => (us < 10000 ? (us / 1000).toFixed(2) : Math.round(us / 1000)) + " ms";
export const clock = (time) => new Date(time).toISOString().slice(11, 23);

// mark is the sign of repairs.
export const mark = (text) => el("span", { class: "repair" }, text);

// indented is JSON with line breaks; another text as it is. Numbers and strings stay as they were written, which
// JSON.parse would not keep.
export function indented(text) {
  try {
    if (typeof JSON.parse(text) !== "object") return text;
  } catch {
    return text;
  }

  // Deeper levels stand below each other: a text of brackets alone would become as long as its square.
  let depth = 0;
  const line = () => "\n" + "  ".repeat(Math.min(depth, 24));
  // The last string may be cut: a pattern that wants its end would look for one behind each of its quotation marks.
  return text.slice(0, maxText).replace(/"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?$)|[{[]\s*[\]}]|[{}[\],:]|\s+/g, (part) => {
    switch (part[0]) {
      case '"': return part;
      case ",": return part + line();
      case ":": return ": ";
      case "{": case "[":
        if (part.length > 1) return part[0] + part.at(-1);
        depth++;
        return part + line();
      case "}": case "]":
        depth--;
        return line() + part;
      default: return "";
    }
  });
}

// maxText is how many characters of a text are shown.
const maxText = 1 << 20;

// block shows a text, which can be long.
export function block(text) {
  const shown = indented(text);
  const pre = el("pre", { tabindex: 0 }, shown.slice(0, maxText));
  return text.length > maxText || shown.length > maxText
    ? el("div", {}, pre, el("p", { class: "soft" }, "Only the beginning is shown. The record has all of it.")) : pre;
}
