package schema

import (
	"math/big"
	"strconv"
	"strings"
)

// decimal is a number by its value, 0.digits × 10^point, exactly.
type decimal struct {
	negative bool
	digits   string // without zeros at either end; empty for zero
	point    int64
}

// farthest is the exponent that stands for all whose digits a machine's number does
// not hold.
const farthest = 1 << 50

// newDecimal reads a number of JSON's form.
func newDecimal(literal string) decimal {
	var d decimal
	mantissa, exponent := literal, ""
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, exponent = literal[:i], literal[i+1:]
	}
	mantissa, d.negative = strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.point = int64(len(digits) - len(fraction))
	if d.digits = strings.TrimRight(digits, "0"); d.digits == "" {
		return decimal{}
	}
	if exponent != "" {
		e, err := strconv.ParseInt(exponent, 10, 64)
		if err != nil || e > farthest || e < -farthest {
			e = farthest
			if exponent[0] == '-' {
				e = -farthest
			}
		}
		d.point += e
	}
	return d
}

// whole tells whether the value is an integer.
func (d decimal) whole() bool { return d.point >= int64(len(d.digits)) || d.digits == "" }

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// compare is negative where d is less than o.
func (d decimal) compare(o decimal) int {
	if d.sign() != o.sign() {
		return d.sign() - o.sign()
	}
	size := strings.Compare(d.digits, o.digits)
	if d.point != o.point && d.digits != "" {
		size = 1
		if d.point < o.point {
			size = -1
		}
	}
	if d.negative {
		return -size
	}
	return size
}

func (d decimal) canon(out []byte) []byte {
	out = append(out, '#')
	if d.negative {
		out = append(out, '-')
	}
	out = append(append(out, d.digits...), 'e')
	return strconv.AppendInt(out, d.point, 10)
}

// count is the value as a number of things: a whole one that is not negative. A very
// large one is more than anybody has.
func (d decimal) count() (int, bool) {
	const many = 1 << 40
	switch {
	case d.negative || !d.whole():
		return 0, false
	case d.digits == "":
		return 0, true
	case d.point > 12:
		return many, true
	}
	n, err := strconv.Atoi(d.digits + strings.Repeat("0", int(d.point)-len(d.digits)))
	return n, err == nil
}

// longest is how many digits multiples are taken of.
const longest = 2000

// dividing is what multiple costs, in steps: it multiplies numbers as long as step as
// often as the power of ten between the two has binary digits.
func (d decimal) dividing(step decimal) int {
	words := func(n decimal) int { return len(n.digits)/19 + 1 }
	bits := 64
	if span := d.point - step.point; span > -1<<16 && span < 1<<16 {
		bits = 18
	}
	return 4 + words(step)*(words(d)+bits*words(step))/8
}

// multiple tells whether d is a whole multiple of step, which is not zero; known is
// false for numbers of too many digits.
func (d decimal) multiple(step decimal) (is, known bool) {
	if d.digits == "" {
		return true, true
	}
	if len(d.digits) > longest || len(step.digits) > longest {
		return false, false
	}
	// Both as integers times a power of ten, neither integer ending in zero.
	shift := d.point - int64(len(d.digits)) - (step.point - int64(len(step.digits)))
	if shift < 0 {
		return false, true // the power of ten that is missing is not in the digits
	}
	var a, b big.Int
	a.SetString(d.digits, 10)
	b.SetString(step.digits, 10)
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(shift), &b)
	return a.Mul(&a, ten).Mod(&a, &b).Sign() == 0, true
}
