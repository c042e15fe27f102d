package client

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	historyFolder = "transfers"
	// historyMax bounds the remembered transfers.
	historyMax = 4096
)

// firstTime reports whether this host tries a transfer for the first time, and remembers that. Only
// then the sender begins before the receiver answers, because a repeated or interrupted transfer
// finds most of its data there. Where nothing can be remembered, no transfer is the first.
func (c *Client) firstTime(server string, hello *wire.Hello, what []string) bool {
	if c.opt.Forget {
		return false
	}
	dir := filepath.Join(c.store.Dir(), historyFolder)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %q %q %q", server, hello.Intent, hello.Share, hello.Paths, what))
	f, err := os.OpenFile(filepath.Join(dir, hex.EncodeToString(sum[:16])), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if os.IsNotExist(err) {
		if err = os.Mkdir(dir, 0o700); err == nil {
			return c.firstTime(server, hello, what)
		}
	}
	if err != nil {
		return false
	}
	_ = f.Close()
	forgetOldest(dir)
	return true
}

// forgetOldest keeps the history small. Forgetting costs at most some bytes that are sent twice.
func forgetOldest(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= historyMax {
		return
	}
	age := func(e os.DirEntry) int64 {
		info, err := e.Info()
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return int(min(1, max(-1, age(a)-age(b)))) })
	for _, e := range entries[:len(entries)-historyMax/2] {
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
}

// pathName is the name under which the path to a server is remembered.
func (c *Client) pathName(server string, t session.Transport) string {
	if len(c.opt.Via) > 0 {
		if relay, _ := c.way(); relay != direct {
			return server + " via " + serverOf(relay)
		}
	}
	if t == session.TransportQUIC {
		return server + " quic"
	}
	return server
}

// pathFile is the file with the number of streams that a path needed.
func (c *Client) pathFile(server string) string {
	return filepath.Join(c.store.Dir(), "paths", hex.EncodeToString([]byte(server)))
}

// learned returns the number of streams that a path needed last time, 0 if unknown.
func (c *Client) learned(server string) int {
	text, err := os.ReadFile(c.pathFile(server))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// learn remembers the number of streams that a path needed. A failure costs some seconds next time.
func (c *Client) learn(server string, streams int) {
	name := c.pathFile(server)
	if c.opt.Forget || c.learned(server) == streams || os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return
	}
	_ = os.WriteFile(name, strconv.AppendInt(nil, int64(streams), 10), 0o600)
}
