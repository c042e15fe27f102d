package web

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// crowd is a server with as much to show as a page must bear: many transfers, long names, names in
// other scripts, and values that are not known.
type crowd struct {
	Server
	began     time.Time
	transfers int
}

const longName = "a-very-long-name-without-any-space-that-goes-on-and-on-and-on-until-no-line-of-any-screen-can-hold-it-at-once.tar.zst"

var crowdNames = []string{"disk.img", longName, "صورة العائلة في الصيف.jpg", "🎉🎊 party 🥳.mov", "تقرير (final) v2.pdf", "invoice\u202efdp.exe", "日本語のとても長いファイル名.zip"}

func (c *crowd) transfer(i int) fxfer.SessionStatus {
	name := crowdNames[i%len(crowdNames)]
	s := fxfer.SessionStatus{
		ID: fmt.Sprintf("%08x", i), Receive: i%3 != 1, Client: fmt.Sprintf("ed25519:client%037d", i%7), Peer: "192.0.2.7:40000", Share: "backup", Paths: []string{name}, First: name,
		Began: c.began, Progress: fxfer.Progress{
			Elapsed: 30 * time.Second, Files: 1, Bytes: 8e9, BytesDone: int64(i%10) * 8e8, Written: int64(i%10) * 8e8, Goodput: float64(i%10) * 5e7, Streams: 16,
			Active: []fxfer.FileProgress{{Path: name, Bytes: 8e9, Done: int64(i%10) * 8e8}},
		},
		Network: server.Network{MinRTT: 840 * time.Microsecond},
	}
	if i%2 == 0 {
		s.Now = &fxfer.Limit{Limiter: "line rate", Share: 0.9}
	}
	for k := range 20 { // no round trip is known at the end, when nothing is in flight
		p := server.Point{At: time.Duration(k) * time.Second, Goodput: 4e8 + float64(k%5)*1e7, MinRTT: 840 * time.Microsecond, Limiter: "line rate"}
		if k < 10 {
			p.RTT, p.InFlight = 840*time.Microsecond, 1e6
		}
		s.Timeline = append(s.Timeline, p)
	}
	return s
}

func (c *crowd) Status() *fxfer.Status {
	st := &fxfer.Status{At: time.Now(), Started: c.began, Ready: true, Host: "nas-in-the-cellar.branch-office.example.org", Addr: "0.0.0.0:7433", Pin: "ed25519:" + strings.Repeat("A", 43), MaxSessions: 64}
	for i, n := range []string{"backup", longName[:60], "صور"} {
		st.Shares = append(st.Shares, server.ShareStatus{Share: fxfer.Share{Name: n, Dir: "/srv/" + n, Rights: identity.Read | identity.Write}, Free: int64(i)*1e12 - 1})
	}
	for i := range c.transfers {
		st.Transfers = append(st.Transfers, c.transfer(i))
	}
	for i, user := range []string{"user:anna", "user:" + longName, "user:ماسح", "user:scanner"} {
		for k := range 5 {
			st.AtDoors = append(st.AtDoors, fxfer.DoorSession{
				ID: fmt.Sprint(i, k), Door: "sftp", Client: user, Peer: "[2001:db8::1]:2022", Share: longName[:60], Began: c.began,
				Received: int64(st.At.Sub(c.began).Seconds()) * 1e6, Sent: 3e9, Files: 7, Failed: i,
			})
		}
	}
	st.Sessions = c.transfers
	st.Counters.Traffic = []server.ShareTraffic{{Share: "backup", Receive: true, Sessions: map[string]int64{"done": 30}, Bytes: 5e12}}
	return st
}

func (c *crowd) Past() (all []fxfer.SessionStatus) {
	for i := range 30 {
		s := c.transfer(i)
		s.Ended = c.began.Add(time.Duration(i) * time.Minute)
		s.Outcome = []string{"done", "done", "partial", "lost"}[i%4]
		s.Limits = []fxfer.Limit{{Limiter: "shared with other traffic", Host: "nas-in-the-cellar", Share: 0.7}}
		all = append(all, s)
	}
	return all
}

func (c *crowd) Session(id string) (fxfer.SessionStatus, bool) {
	var i int
	_, err := fmt.Sscanf(id, "%x", &i)
	s := c.transfer(i)
	if i >= c.transfers {
		s.Ended = c.began.Add(time.Minute)
	}
	return s, err == nil
}

func (c *crowd) Clients() (all []fxfer.ClientStatus, err error) {
	for i, name := range []string{"", "laptop", "حاسوب أحمد", "🦊", longName, "db", "web"} {
		all = append(all, fxfer.ClientStatus{
			Key: fmt.Sprintf("ed25519:client%037d", i), Name: name, Rights: strings.TrimSuffix(strings.Repeat("some-share=rw,", 1+i*i/2), ","), Revoked: i == 5,
		})
	}
	return all, nil
}

// showCrowd: a page stays usable with many transfers and names of any length and script, on a phone as
// on a wide screen.
func showCrowd(t *testing.T, b *browser) {
	t.Helper()
	c := &crowd{began: time.Now().Add(-time.Hour), transfers: 50}
	pages, err := Listen("127.0.0.1:0", c, Options{Home: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- pages.Serve(t.Context()) }()
	t.Cleanup(func() { require.NoError(t, <-done) })

	b.dark(false)
	b.screen(1400, 900, false)
	b.open(pages.URL())
	b.until("the first transfers", `document.querySelectorAll("article.run").length === 12 && document.querySelectorAll("#client-rows tr").length === 7`)
	b.until("the timelines", `document.querySelector("article.run .strip").ariaLabel.includes("line rate")`)
	require.Equal(t, "now –least 0.84 ms", b.eval(`document.querySelectorAll("article.run .keys")[1].textContent`), "an old round trip is not that of now")
	b.until("who is at doors", `!document.querySelector("#doors").hidden && document.querySelectorAll("#door-rows tr").length === 12 && /user:annasftp.*3.60 GB3.00 GB8.* Mbit/.test(document.querySelector("#door-rows").textContent)`)
	require.Contains(t, b.eval(`document.querySelectorAll("article.run")[5].textContent`), "invoice\ufffdfdp.exe", "a name turns the text around")
	b.eval(`document.querySelector("#past button").click()`)
	b.until("how it went", `document.querySelector("#detail[open] .keys")?.textContent === "highest 440 Mbit/s"`)
	b.shoot("crowd-detail")
	b.eval(`document.querySelector("#detail").close()`)
	b.shoot("crowd")
	b.dark(true)
	b.screen(390, 844, true)
	b.until("no line is wider than a phone", `document.documentElement.scrollWidth <= 390`)
	b.until("every cell of the tables is in view", `[...document.querySelectorAll(".tag, #client-rows button, article select, article button")].every(e => e.getBoundingClientRect().right <= 390)`)
	b.until("names have the width of the phone", `document.querySelector("article.run h3").getBoundingClientRect().width > 280`)
	b.shoot("phone-crowd")
	b.eval(`document.querySelector("#more-doors").click()`)
	b.until("all at doors", `document.querySelectorAll("#door-rows tr").length === 20 && document.querySelector("#more-doors").hidden`)
	for _, part := range []string{"running", "doors", "history", "shares", "clients"} {
		b.eval(`document.querySelector("#` + part + `").scrollIntoView()`)
		b.shoot("phone-crowd-" + part)
	}
	b.eval(`document.querySelector("#more-running").click()`)
	b.until("all transfers", `document.querySelectorAll("article.run").length === 50 && document.querySelector("#more-running").hidden`)
}
