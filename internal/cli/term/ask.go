package term

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Confirmer returns what asks on the terminal whether to trust an unknown server. It is nil if nobody
// can answer there: then the error about the server says how to trust it.
func Confirmer() func(ctx context.Context, server, pin string, knownAs []string) (bool, error) {
	if !Present() {
		return nil
	}
	return confirm
}

// confirm asks whether to trust an unknown server. knownAs are known servers with the same key.
func confirm(ctx context.Context, server, pin string, knownAs []string) (bool, error) {
	return onTerminal(func(in io.Reader, out io.Writer) (bool, error) { return ask(ctx, in, out, server, pin, knownAs) })
}

func ask(ctx context.Context, in io.Reader, out io.Writer, server, pin string, knownAs []string) (bool, error) {
	check := "Compare it with the key that \"fxfer serve\" prints on the server."
	if len(knownAs) > 0 {
		check = "You know this key by another name of the server: " + OneLine(strings.Join(knownAs, ", "))
	}
	return yes(ctx, in, out, fmt.Sprintf("The server %s is new to you. Its key is\n  %s\n%s\nTrust this key? [y/N] ",
		OneLine(server), OneLine(pin), check))
}

// Agree asks a question on the terminal and reports whether the answer is yes.
func Agree(ctx context.Context, question string) (bool, error) {
	return onTerminal(func(in io.Reader, out io.Writer) (bool, error) { return yes(ctx, in, out, question) })
}

// onTerminal calls do with the terminal. It does not close the terminal, because an interrupted
// read may still wait on it.
func onTerminal(do func(in io.Reader, out io.Writer) (bool, error)) (bool, error) {
	in, out, err := open()
	if err != nil {
		return false, fmt.Errorf("ask on the terminal: %w", err)
	}
	return do(in, out)
}

// yes asks the question, and waits for a line or until ctx is done.
func yes(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	fmt.Fprint(out, question)
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
