// Program serves a folder, invites itself, sends a file and gets it back.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func main() {
	dir := os.Args[1]
	server, err := fxfer.NewServer(fxfer.ServerOptions{Home: dir + "/server", Listen: "127.0.0.1:0",
		Shares: []fxfer.Share{{Name: "data", Dir: dir, Rights: fxfer.Read | fxfer.Write, Keep: fxfer.Keep{Daily: 7}}}})
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- server.Serve(ctx) }()
	text, err := server.Invite(fxfer.InviteOptions{Host: "127.0.0.1", Shares: []string{"data"},
		Rights: fxfer.Read | fxfer.Write, Expires: time.Minute})
	check(err)
	url, err := fxfer.ParseURL(text)
	check(err)
	client, err := fxfer.NewClient(fxfer.Options{Home: dir + "/client"})
	check(err)
	var last fxfer.Progress
	url.Path = "copy"
	report, err := client.Send(ctx, []string{dir + "/file"}, url, fxfer.Transfer{Progress: func(p fxfer.Progress) { last = p }})
	check(err)
	url.Token, url.Pin = "", ""
	var got bytes.Buffer
	_, err = client.GetTo(ctx, url, &got, fxfer.Transfer{})
	check(err)
	url.Path = "nothing"
	_, err = client.GetTo(ctx, url, &got, fxfer.Transfer{})
	if fxfer.KindOf(err) == fxfer.KindNotFound {
		fmt.Printf("%d sent, %d bytes, got %q, %s\n", report.Sent, last.BytesDone, &got, fxfer.KindOf(err))
	}
	stop()
	check(<-done)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
