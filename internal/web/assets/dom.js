// What the dashboards share: elements, requests, and the button for themes. Data from files or clients
// becomes text, never markup.
import { leave, request } from "/assets/token.js";

export const $ = id => document.getElementById(id);

// plain replaces characters that change the direction of writing: a file name could forge other text
// with them.
export const plain = text => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd");

// el makes an element with attributes and children. A child that is a string becomes text.
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") e.className = value;
    else if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== undefined) e.setAttribute(name, value);
  }
  e.append(...children.filter(c => c !== null && c !== undefined).map(c => typeof c === "string" ? plain(c) : c));
  return e;
}

// put sets text only if it changes, so that the user's selection stays.
export function put(e, text) {
  text = plain(text);
  if (e.textContent !== text) e.textContent = text;
}

export async function call(method, path) {
  const r = await request(path, method);
  if (r.status === 401) leave();
  if (!r.ok) throw new Error((await r.text()).trim() || r.statusText);
  return r.status === 204 ? null : r.json();
}

// state shows how the server is, in the header.
export function state(text, kind) {
  put($("state"), text);
  $("state").className = "pill " + kind;
}

const themes = { auto: ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };
const theme = () => document.documentElement.dataset.theme || "auto";

// themeButton makes the button for themes work. changed is called after each change.
export function themeButton(changed) {
  function show() {
    const [sign, name] = themes[theme()];
    put($("theme"), sign);
    $("theme").setAttribute("aria-label", "Theme: " + name);
    changed();
  }
  $("theme").addEventListener("click", () => {
    const order = Object.keys(themes), next = order[(order.indexOf(theme()) + 1) % order.length];
    if (next === "auto") {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("theme");
    } else {
      document.documentElement.dataset.theme = next;
      localStorage.setItem("theme", next);
    }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}
