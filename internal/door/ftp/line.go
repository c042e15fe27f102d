package ftp

import (
	"bufio"
	"errors"
	"strings"
)

// maxLine bounds a line of a client, in bytes: a path of 4,095 bytes has room.
const maxLine = 4<<10 + 16

var errLongLine = errors.New("the command is too long")

// Bytes of telnet (RFC 854), which the control connection has below the commands.
const (
	telnetIAC  = 0xff // what follows is for telnet; twice, it is a byte of the text
	telnetWill = 0xfb
	telnetDont = 0xfe // WILL, WON'T, DO and DON'T have an option
	telnetMin  = 0xf0 // the least command
)

// readLine reads a line, and removes its end and what is for telnet. Errors: errLongLine, and those
// of r.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		b, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		if b == '\n' {
			break
		}
		if line = append(line, b); len(line) > maxLine {
			return "", errLongLine
		}
	}
	return strings.TrimSuffix(withoutTelnet(line), "\r"), nil
}

// withoutTelnet removes the commands of telnet, such as those that clients send before ABOR. Systems
// take urgent bytes out of the stream, so a command may lack its end.
func withoutTelnet(line []byte) string {
	var text strings.Builder
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] != telnetIAC:
			text.WriteByte(line[i])
		case i+1 == len(line) || line[i+1] < telnetMin: // cut short
		case line[i+1] == telnetIAC:
			text.WriteByte(telnetIAC)
			i++
		case line[i+1] >= telnetWill && line[i+1] <= telnetDont:
			i += 2
		default:
			i++
		}
	}
	return text.String()
}

// parseLine returns the command of a line in upper case, and its argument as it is. ok is false if
// the line is no command: such bytes are not in any name.
func parseLine(line string) (command, arg string, ok bool) {
	command, arg, _ = strings.Cut(line, " ")
	if len(command) == 0 || len(command) > 8 || strings.ContainsAny(arg, "\x00\r") {
		return "", "", false
	}
	for _, c := range []byte(command) {
		if c|0x20 < 'a' || c|0x20 > 'z' {
			return "", "", false
		}
	}
	return strings.ToUpper(command), arg, true
}
