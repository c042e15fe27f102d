package web

import (
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

var screenshots = flag.String("screenshots", "", "folder for pictures of the dashboard")

// A user watches a transfer from start to end, sees what limits it, cancels another one and
// revokes the client.
func TestDashboard(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	s := start(t, fxfer.Options{RateLimit: 24e6}) // which a busy machine can move, too
	b.screen(1280, 900, false)
	b.dark(false)

	// Without the token the page shows only the login form.
	b.open(s.base + "/")
	b.until("the question for the token", `document.querySelector("#token")`)
	b.axe("token")
	b.mu.Lock()
	b.faults = nil // 401
	b.mu.Unlock()

	b.open(s.pages.URL())
	b.until("serving", `document.querySelector("#state").textContent === "serving"`)
	require.Equal(t, s.base+"/", b.eval("location.href"), "the token stays in the address bar")
	b.until("nothing runs", `!document.querySelector("#idle").hidden && document.querySelector("#share-rows").textContent.includes("backup")`)
	b.until("the backup job", `!document.querySelector("#jobs").hidden && document.querySelector("#job-rows").textContent.includes("older than max-age")`)
	b.until("the queue", `!document.querySelector("#queues").hidden && document.querySelector("#queue-rows").textContent.includes("7") && document.querySelector("#queue-rows").textContent.includes("the line is away")`)
	b.shoot("idle")

	sent := make(chan error, 1)
	send := func(name string) {
		_, err := s.client.Send(t.Context(), []string{name}, s.url, fxfer.Transfer{})
		sent <- err
	}
	small, large := file(t, 15<<20), file(t, 150<<20) // the large one must outlast the checks
	go send(small)
	b.until("the transfer", `document.querySelectorAll("article.run").length === 1`)
	b.until("its limiter", `document.querySelector(".why strong").textContent.includes("rate limit") && document.querySelector(".why .hint").textContent.includes("--rate-limit")`)
	b.until("half of it", `document.querySelector(".run .bar").ariaValueNow > 50 && (window.seen = ["article h3", ".run .canvas", ".strip"].map(s => {
		const e = document.querySelector(s); return e.ariaLabel || e.textContent; }).join("\n"))`)
	for _, part := range []string{"Receiving backup/disk.img", "Goodput over time. now: ", "rate limit"} {
		require.Contains(t, b.eval(`window.seen`), part)
	}
	b.axe("light")
	b.shoot("light")
	require.NoError(t, <-sent)
	b.until("its end", `document.querySelectorAll("article.run").length === 0`)
	b.until("its place in the history", `document.querySelector("#past .tag")?.textContent === "done"`)
	require.Contains(t, b.eval(`document.querySelector("#past").textContent`), "15.7 MB")
	b.eval(`document.querySelector("#past button").click()`)
	b.until("how it went", `document.querySelector("#detail[open] .strip")?.ariaLabel.includes("rate limit")`)
	b.axe("detail")
	b.shoot("detail")
	b.eval(`document.querySelector("#detail").close()`)

	go send(large)
	b.dark(true)
	b.until("another transfer", `document.querySelectorAll("article.run").length === 1`)
	b.until("its limiter", `document.querySelector(".why strong").textContent.includes("rate limit")`)
	b.axe("dark")
	b.shoot("dark")
	b.screen(390, 844, true)
	b.until("no line is wider than a phone", `document.documentElement.scrollWidth <= 390`)
	b.until("the button to revoke is in view, however long the rights are", `(rights => {
		rights.textContent = "another-share=rw,".repeat(9);
		return document.querySelector("#client-rows button").getBoundingClientRect().right <= 390;
	})(document.querySelector("#client-rows .rights"))`)
	b.axe("phone")
	b.shoot("phone")
	b.eval(`document.querySelector("#history").scrollIntoView()`)
	b.shoot("phone-history")
	b.eval(`(e => { e.value = "low"; e.dispatchEvent(new Event("change")); })(document.querySelector("article.run select"))`)
	b.until("its priority", `document.querySelector("article.run .facts").textContent.includes("Prioritylow")`)
	b.eval(`document.querySelector("article.run .danger").click()`)
	b.until("the question", `document.querySelector("#ask[open]")`)
	b.axe("question")
	require.Equal(t, "Keep", b.eval("document.activeElement.textContent"), "the harmless choice is the first")
	b.eval(`document.querySelector("#ask-yes").click()`)
	err := <-sent
	require.ErrorContains(t, err, "administrator")
	require.Equal(t, fxfer.KindInterrupted, fxfer.KindOf(err))
	b.until("its end", `document.querySelectorAll("article.run").length === 0`)
	b.until("cancelled", `document.querySelector("#past .tag")?.textContent === "cancelled"`)

	b.until("the client", `document.querySelector("#client-rows .danger")`)
	b.eval(`document.querySelector("#client-rows .danger").click()`)
	b.until("the question", `document.querySelector("#ask[open]")`)
	b.eval(`document.querySelector("#ask-yes").click()`)
	b.until("revoked", `document.querySelector("#client-rows .tag")?.textContent === "revoked"`)
	s.url.Token = ""
	_, err = s.client.Send(t.Context(), []string{file(t, 1<<10)}, s.url, fxfer.Transfer{})
	require.Equal(t, fxfer.KindTrust, fxfer.KindOf(err), "%v", err)

	// The keyboard reaches everything. First comes the link that skips the repeated parts.
	b.eval(`document.activeElement.blur(), window.focus()`)
	b.call(nil, "Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9})
	b.call(nil, "Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9})
	require.NotEqual(t, "BODY", b.eval("document.activeElement.tagName"))

	b.mu.Lock()
	require.NotEmpty(t, b.requests)
	for _, u := range b.requests {
		require.True(t, strings.HasPrefix(u, s.base+"/") || u == "about:blank", "a request left: %s", u)
	}
	b.mu.Unlock()
	showCrowd(t, b)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.faults)
}
