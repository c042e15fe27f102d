// The token opens the dashboard's data. It is kept for this origin, and a port is part of an origin:
// other services of this host never get it, as they would get a cookie. It travels in a header.
const key = "fxfer-token";

// keep stores the token for later visits.
export function keep(token) { localStorage.setItem(key, token); }

// take moves a token from the address bar into the store.
export function take() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  keep(token);
  history.replaceState(null, "", "/");
}

// request is fetch with the token.
export function request(path, method = "GET", token = localStorage.getItem(key)) {
  return fetch(path, { method, credentials: "omit", cache: "no-store", headers: { Authorization: "Bearer " + token } });
}

// leave goes to the page that asks for the token.
export function leave() {
  localStorage.removeItem(key);
  location.replace("/login");
}

// kept reports whether there is a token.
export function kept() { return !!localStorage.getItem(key); }
