package webhook

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBearer takes one word of a file, and shows it in no error.
func TestBearer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	_, err := Bearer(file)
	require.ErrorIs(t, err, os.ErrNotExist)
	for text, want := range map[string]string{
		"hunter2": "Bearer hunter2", " hunter2\r\n": "Bearer hunter2",
		"": "", "\n": "", "hunter2\nhunter3": "", "hunter 2": "", "hunter2\x00": "", "hünter2": "", strings.Repeat("hunter2", 1000): "",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		got, err := Bearer(file)
		require.Equal(t, want, got)
		if want == "" {
			require.ErrorContains(t, err, "expected one line")
			require.NotContains(t, err.Error(), "hunter2")
		} else {
			require.NoError(t, err)
		}
	}
	require.NoError(t, os.WriteFile(file, []byte("hunter2"+strings.Repeat(" ", maxFile)+"hunter3"), 0o600))
	_, err = Bearer(file)
	require.ErrorContains(t, err, "expected one line", "what is behind the bound of the file counts")
	_, err = Bearer(os.DevNull)
	require.ErrorContains(t, err, "expected a regular file")
}

// TestWebhookSecrets: neither a failure nor a redirect gives away what is secret about a webhook: its URL
// and its headers.
func TestWebhookSecrets(t *testing.T) {
	t.Parallel()
	const secret = "SECRETSECRET"
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		code, err := strconv.Atoi(path.Base(q.URL.Path))
		switch {
		case path.Base(q.URL.Path) == "badly":
			w.Header().Set("Location", "http://h:bad/hooks/"+secret)
			code = http.StatusMovedPermanently
		case path.Base(q.URL.Path) == "malformed":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("no such path: " + q.URL.Path + "\r\n\r\n"))
				_ = conn.Close()
			}
			return
		case err != nil:
			panic(http.ErrAbortHandler)
		case code < http.StatusBadRequest: // as another host
			w.Header().Set("Location", strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+"/"+secret)
		}
		w.WriteHeader(code)
	}))
	defer hook.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := "http://" + listener.Addr().String()
	listener.Close()
	for _, webhook := range []string{
		dead + "/services/" + secret, "http://u:" + secret + "@" + strings.TrimPrefix(dead, "http://") + "/",
		hook.URL + "/" + secret, hook.URL + "/" + secret + "/404", hook.URL + "/" + secret + "/badly", hook.URL + "/" + secret + "/malformed",
		hook.URL + "/" + secret + "/301", hook.URL + "/" + secret + "/302", hook.URL + "/" + secret + "/307", hook.URL + "/" + secret + "/308",
	} {
		err := Post(t.Context(), webhook, map[string]string{"X-Token": secret}, []byte("{}"))
		require.Error(t, err, webhook)
		require.NotContains(t, err.Error(), secret)
		require.Contains(t, err.Error(), "webhook at 127.0.0.1:")
	}
	require.Zero(t, elsewhere.Load(), "requests that followed a redirect")
}
