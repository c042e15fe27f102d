package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// confirm asks on the terminal whether to trust a server that nothing is known of.
func confirm(ctx context.Context, server, pin string) (bool, error) {
	in, out, err := openTerminal()
	if err != nil {
		return false, fmt.Errorf("ask on the terminal: %w", err)
	}
	// The terminal stays open: a read that ctx has cut short still waits on it.
	return ask(ctx, in, out, server, pin)
}

func ask(ctx context.Context, in io.Reader, out io.Writer, server, pin string) (bool, error) {
	fmt.Fprintf(out, "The server %s is not known yet. Its key is\n  %s\n"+
		"Whoever runs it can compare: fxfer serve prints the key there.\nTrust it from now on? [y/N] ", oneLine(server), oneLine(pin))
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		}
		return false, nil
	case <-ctx.Done():
		fmt.Fprintln(out)
		return false, ctx.Err()
	}
}

// hasTerminal tells whether there is somebody to ask.
func hasTerminal() bool {
	in, out, err := openTerminal()
	if err != nil {
		return false
	}
	in.Close()
	out.Close()
	return true
}
