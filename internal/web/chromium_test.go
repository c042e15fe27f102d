package web

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium with one page. The test controls it over pipes with the DevTools
// protocol.
type browser struct {
	t   *testing.T
	out *os.File

	mu       sync.Mutex
	next     int
	answers  map[int]chan answered
	session  string
	requests []string // URLs
	faults   []string // errors of scripts, of the console and of content policies
}

type answered struct {
	result json.RawMessage
	err    error
}

// openBrowser starts Chromium. It skips the test if Chromium is not installed.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is missing")
	}
	theirIn, out, err := os.Pipe()
	require.NoError(t, err)
	in, theirOut, err := os.Pipe()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "chromium")
	require.NoError(t, err)
	args := []string{
		"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + dir, "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--force-color-profile=srgb", "--mute-audio",
		"--no-sandbox", // containers do not allow the sandbox; the page is our own
		"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "about:blank",
	}
	cmd := exec.Command(path, args...)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	require.NoError(t, cmd.Start())
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, out: out, answers: make(map[int]chan answered)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(in)
	}()
	t.Cleanup(func() {
		out.Close()
		timer := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // it ends when its pipe closes
		timer.Stop()
		<-read
		in.Close()
		// Its helper processes may still write for a moment.
		for range 50 {
			if os.RemoveAll(dir) == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	})

	var target struct{ TargetID string }
	b.call(&target, "Target.createTarget", map[string]any{"url": "about:blank"})
	var attached struct{ SessionID string }
	b.call(&attached, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true})
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.call(nil, domain+".enable", nil)
	}
	return b
}

// read processes Chromium's messages until it ends.
func (b *browser) read(in io.Reader) {
	r := bufio.NewReaderSize(in, 1<<20)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			break
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.ID > 0 {
			a := answered{result: m.Result}
			if m.Error != nil {
				a.err = errors.New(m.Error.Message)
			}
			b.answers[m.ID] <- a
			delete(b.answers, m.ID)
		} else {
			b.noteLocked(m.Method, m.Params)
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.answers {
		c <- answered{err: errors.New("chromium has ended")}
	}
	b.answers = nil
}

// noteLocked records the page's requests and errors.
func (b *browser) noteLocked(method string, params json.RawMessage) {
	var p struct {
		Request          struct{ URL string }
		Type             string
		Args             []struct{ Value, Description any }
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	switch method {
	case "Network.requestWillBeSent":
		b.requests = append(b.requests, p.Request.URL)
	case "Runtime.exceptionThrown":
		b.faults = append(b.faults, p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		if p.Type == "error" || p.Type == "warning" || p.Type == "assert" {
			b.faults = append(b.faults, fmt.Sprint(p.Type, p.Args))
		}
	case "Log.entryAdded":
		if p.Entry.Level == "error" || p.Entry.Level == "warning" {
			b.faults = append(b.faults, p.Entry.Text+" "+p.Entry.URL)
		}
	}
}

// call sends a command to Chromium and decodes its answer into result.
func (b *browser) call(result any, method string, params map[string]any) {
	b.t.Helper()
	c := make(chan answered, 1)
	b.mu.Lock()
	require.NotNil(b.t, b.answers, "chromium has ended")
	b.next++
	m := map[string]any{"id": b.next, "method": method}
	b.answers[b.next] = c
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	b.mu.Unlock()
	text, err := json.Marshal(m)
	require.NoError(b.t, err)
	_, err = b.out.Write(append(text, 0))
	require.NoError(b.t, err)
	select {
	case a := <-c:
		if method == "Runtime.evaluate" && a.err != nil && strings.Contains(a.err.Error(), "navigated") {
			return // the page changes to another, as after a login: there is no value yet
		}
		require.NoError(b.t, a.err, method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(a.result, result))
		}
	case <-time.After(time.Minute):
		require.FailNow(b.t, "chromium does not answer", method)
	}
}

// eval returns the value of an expression, which may be a promise.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.call(&r, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true})
	if r.ExceptionDetails != nil {
		require.FailNow(b.t, "in the page", "%s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	return r.Result.Value
}

// until waits for an expression to become true.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if v, ok := b.eval("(() => { try { return Boolean(" + expression + ") } catch { return false } })()").(bool); ok && v {
			return
		}
		if time.Now().After(end) {
			require.FailNow(b.t, "the condition did not become true", "%s\n%v\n%s", what, b.faults, b.eval("document.body.innerText"))
		}
	}
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.call(nil, "Page.navigate", map[string]any{"url": url})
}

// screen sets the size and the kind of the emulated screen.
func (b *browser) screen(width, height int, phone bool) {
	b.t.Helper()
	scale := 1
	if phone {
		scale = 2
	}
	b.call(nil, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone})
}

func (b *browser) dark(dark bool) {
	b.t.Helper()
	value := "light"
	if dark {
		value = "dark"
	}
	b.call(nil, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}, {"name": "prefers-reduced-motion", "value": "reduce"}}})
}

// shoot saves a screenshot in the folder that -screenshots names: of the whole page, except on a
// phone.
func (b *browser) shoot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	var shot struct{ Data string }
	b.call(&shot, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": !strings.HasPrefix(name, "phone")})
	text, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), text, 0o644))
}

// axe fails the test if axe-core finds a serious problem on the page. FXFER_AXE is the path of
// axe.min.js.
func (b *browser) axe(when string) {
	b.t.Helper()
	path := os.Getenv("FXFER_AXE")
	if path == "" {
		return
	}
	script, err := os.ReadFile(path)
	require.NoError(b.t, err)
	b.eval(string(script) + "; true")
	found := b.eval(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v =>
		v.impact + ": " + v.id + ": " + v.nodes.map(n => n.html.slice(0, 200) + " " + n.failureSummary).join(" | ")))`)
	for _, v := range found.([]any) {
		text := v.(string)
		b.t.Log(when, text)
		require.False(b.t, strings.HasPrefix(text, "serious") || strings.HasPrefix(text, "critical"), "%s: %s", when, text)
	}
}
