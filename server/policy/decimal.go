package policy

import (
	"regexp"
	"strconv"
	"strings"
)

// decimal is a number literal by its value, 0.digits × 10^point, exactly: no
// float is involved, so none is rounded and none is too large.
type decimal struct {
	negative bool
	digits   string // without zeros at either end; empty for zero
	point    int64
}

// numberForm is JSON's grammar of a number.
var numberForm = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// beyond is the exponent that stands for all whose digits are more than a number
// of the machine holds.
const beyond = 1 << 50

// newDecimal reads a literal of JSON's form.
func newDecimal(literal string) decimal {
	mantissa, exponent := literal, ""
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, exponent = literal[:i], literal[i+1:]
	}
	var d decimal
	mantissa, d.negative = strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.point = int64(len(digits) - len(fraction))
	d.digits = strings.TrimRight(digits, "0")
	if d.digits == "" {
		return decimal{}
	}
	if exponent != "" {
		e, err := strconv.ParseInt(exponent, 10, 64)
		switch {
		case (err != nil || e < -beyond) && strings.HasPrefix(exponent, "-"):
			e = -beyond
		case err != nil || e > beyond:
			e = beyond
		}
		d.point += e
	}
	return d
}

// integral tells whether the value is whole.
func (d decimal) integral() bool { return d.digits == "" || d.point >= int64(len(d.digits)) }

// int64 is the value, when it is whole and fits.
func (d decimal) int64() (int64, bool) {
	if d.digits == "" {
		return 0, true
	}
	if !d.integral() || d.point > 19 {
		return 0, false
	}
	text := d.digits + strings.Repeat("0", int(d.point)-len(d.digits))
	if d.negative {
		text = "-" + text
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// compare is negative when d is less than o, and zero when both are equal.
func (d decimal) compare(o decimal) int {
	switch {
	case d.sign() != o.sign():
		return d.sign() - o.sign()
	case d.negative:
		return o.magnitude(d)
	}
	return d.magnitude(o)
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

func (d decimal) magnitude(o decimal) int {
	switch {
	case d.point < o.point:
		return -1
	case d.point > o.point:
		return 1
	}
	return strings.Compare(d.digits, o.digits)
}
