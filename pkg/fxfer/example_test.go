package fxfer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// folders makes a folder for the state of each of two hosts, one that is shared, and one with a file to send.
func folders() (server, client, shared, source string, remove func()) {
	dir, err := os.MkdirTemp("", "fxfer")
	if err != nil {
		panic(err)
	}
	in := func(name string) string {
		p := filepath.Join(dir, name)
		if err := os.Mkdir(p, 0o700); err != nil {
			panic(err)
		}
		return p
	}
	server, client, shared, source = in("server"), in("client"), in("shared"), in("source")
	if err := os.WriteFile(filepath.Join(source, "hello.txt"), []byte("hello\n"), 0o600); err != nil {
		panic(err)
	}
	return server, client, shared, source, func() { _ = os.RemoveAll(dir) }
}

// start serves a folder until what it returns is called, and invites one client.
func start(home, dir string) (invitation fxfer.URL, stop func()) {
	server, err := fxfer.NewServer(fxfer.ServerOptions{Home: home, Listen: "127.0.0.1:0",
		Shares: []fxfer.Share{{Name: "data", Dir: dir, Rights: fxfer.Read | fxfer.Write}}})
	if err != nil {
		panic(err)
	}
	text, err := server.Invite(fxfer.InviteOptions{Host: "127.0.0.1"})
	if err != nil {
		panic(err)
	}
	if invitation, err = fxfer.ParseURL(text); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- server.Serve(ctx) }()
	return invitation, func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
	}
}

// A server offers folders until its context ends. Running transfers reach a checkpoint first.
func ExampleServer() {
	home, _, shared, _, remove := folders()
	defer remove()
	server, err := fxfer.NewServer(fxfer.ServerOptions{
		Home:      home,
		Listen:    "127.0.0.1:0",
		Shares:    []fxfer.Share{{Name: "data", Dir: shared, Rights: fxfer.Read | fxfer.List}},
		RateLimit: 500_000_000, // bit/s
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once, here
	fmt.Println(server.Serve(ctx))
	// Output: <nil>
}

// An invitation admits a client once. From then on both know each other's keys.
func ExampleClient_Send() {
	serverHome, clientHome, shared, source, remove := folders()
	defer remove()
	u, stop := start(serverHome, shared)
	defer stop()
	c, err := fxfer.NewClient(fxfer.Options{Home: clientHome})
	if err != nil {
		panic(err)
	}
	report, err := c.Send(context.Background(), []string{filepath.Join(source, "hello.txt")}, u, fxfer.Transfer{})
	if err != nil {
		panic(err)
	}
	fmt.Println(report.Sent, "file,", report.Written, "bytes")
	fmt.Println("b3sum prints", report.Digest[:16])

	u.Token, u.Pin = "", ""
	report, err = c.Send(context.Background(), []string{filepath.Join(source, "hello.txt")}, u, fxfer.Transfer{})
	fmt.Println(report.Same, "unchanged,", err)
	// Output:
	// 1 file, 6 bytes
	// b3sum prints 8e4c7c1b99dbfd50
	// 1 unchanged, <nil>
}

// Errors have a kind, and some a remedy.
func ExampleClient_Get() {
	serverHome, clientHome, shared, source, remove := folders()
	defer remove()
	u, stop := start(serverHome, shared)
	defer stop()
	c, err := fxfer.NewClient(fxfer.Options{Home: clientHome})
	if err != nil {
		panic(err)
	}
	u.Path = "greetings/hello.txt"
	if _, err := c.SendStream(context.Background(), strings.NewReader("hello\n"), u, fxfer.Transfer{}); err != nil {
		panic(err)
	}
	u.Token, u.Pin = "", ""
	if _, err := c.Get(context.Background(), []fxfer.URL{u}, source+"/copy", fxfer.Transfer{}); err != nil {
		panic(err)
	}
	text, err := os.ReadFile(filepath.Join(source, "copy"))
	fmt.Printf("%q %v\n", text, err)

	u.Path = "nothing"
	_, err = c.Get(context.Background(), []fxfer.URL{u}, source, fxfer.Transfer{})
	fmt.Println(fxfer.KindOf(err) == fxfer.KindNotFound)
	// Output:
	// "hello\n" <nil>
	// true
}

// A listing of a folder, sorted by name.
func ExampleClient_List() {
	serverHome, clientHome, shared, source, remove := folders()
	defer remove()
	u, stop := start(serverHome, shared)
	defer stop()
	c, err := fxfer.NewClient(fxfer.Options{Home: clientHome})
	if err != nil {
		panic(err)
	}
	if _, err := c.Send(context.Background(), []string{source}, u, fxfer.Transfer{}); err != nil {
		panic(err)
	}
	u.Token, u.Pin, u.Path = "", "", "source"
	entries, err := c.List(context.Background(), u)
	for _, e := range entries {
		fmt.Println(e.Kind, e.Path, e.Bytes)
	}
	fmt.Println(err)
	// Output:
	// file hello.txt 6
	// <nil>
}

// GetTo writes one file to an io.Writer, after all of it was checked. Progress belongs to the call.
func ExampleClient_GetTo() {
	serverHome, clientHome, shared, source, remove := folders()
	defer remove()
	u, stop := start(serverHome, shared)
	defer stop()
	c, err := fxfer.NewClient(fxfer.Options{Home: clientHome})
	if err != nil {
		panic(err)
	}
	if _, err := c.Send(context.Background(), []string{source + "/"}, u, fxfer.Transfer{}); err != nil {
		panic(err)
	}
	u.Token, u.Pin, u.Path = "", "", "hello.txt"
	var last fxfer.Progress
	var text strings.Builder
	_, err = c.GetTo(context.Background(), u, &text, fxfer.Transfer{Progress: func(p fxfer.Progress) { last = p }})
	fmt.Printf("%q %d bytes %v\n", text.String(), last.BytesDone, err)

	u.Path = "nothing"
	_, err = c.GetTo(context.Background(), u, &text, fxfer.Transfer{})
	fmt.Println(fxfer.KindOf(err))
	// Output:
	// "hello\n" 6 bytes <nil>
	// not found
}

// A backup is a snapshot: a new folder that shares what has not changed with the one before.
func ExampleClient_Snapshots() {
	serverHome, clientHome, shared, source, remove := folders()
	defer remove()
	u, stop := start(serverHome, shared)
	defer stop()
	c, err := fxfer.NewClient(fxfer.Options{Home: clientHome})
	if err != nil {
		panic(err)
	}
	u.Path = "nights"
	for _, night := range []string{"2026-11-20T020000Z", "2026-11-21T020000Z"} {
		call := fxfer.Transfer{Target: fxfer.Target{Snapshot: night}}
		report, err := c.Send(context.Background(), []string{source + "/"}, u, call)
		if err != nil {
			panic(err)
		}
		fmt.Println(report.Snapshot, report.Sent, "sent,", report.Same, "unchanged")
		u.Token, u.Pin = "", ""
	}
	snapshots, err := c.Snapshots(context.Background(), u)
	fmt.Println(len(snapshots), "snapshots", err)
	// Output:
	// 2026-11-20T020000Z 1 sent, 0 unchanged
	// 2026-11-21T020000Z 0 sent, 1 unchanged
	// 2 snapshots <nil>
}

// Progress belongs to a call, and so does what becomes of each entry.
func ExampleTransfer() {
	serverHome, clientHome, shared, source, remove := folders()
	defer remove()
	u, stop := start(serverHome, shared)
	defer stop()
	c, err := fxfer.NewClient(fxfer.Options{Home: clientHome})
	if err != nil {
		panic(err)
	}
	var last fxfer.Progress
	_, err = c.Send(context.Background(), []string{source + "/"}, u, fxfer.Transfer{
		Progress: func(p fxfer.Progress) { last = p },
		File: func(r fxfer.FileResult) {
			if r.Kind == "file" {
				fmt.Println(r.Path, r.Outcome)
			}
		},
	})
	fmt.Println(last.BytesDone, "of", last.Bytes, "bytes", err)
	// Output:
	// hello.txt committed
	// 6 of 6 bytes <nil>
}
