package pointsman

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Parameter is one parameter: its rules, and the variable that it is read into.
type Parameter struct {
	Name, Description string
	// Optional parameters may be left out; then the variable keeps what it holds, which is the default.
	Optional bool
	// Into is a *float64, a *uint32 (written without fraction or exponent), a *bool or a *string.
	Into any
	// Names are what a string may be, where they are given.
	Names []string
	// What a number must be; see Bound.
	Min, Above, Max, Below *float64
}

// Bound is a bound of a Parameter.
func Bound(number float64) *float64 { return &number }

type entry struct {
	name  string
	value json.Token
}

// entries are the keys of a JSON object, with the first token of each value.
func entries(text []byte) ([]entry, error) {
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		return nil, fmt.Errorf("parameters are not JSON: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if first, _ := decoder.Token(); first != json.Delim('{') {
		return nil, errors.New("parameters must be a JSON object")
	}
	var found []entry
	for decoder.More() {
		key, _ := decoder.Token()
		value, _ := decoder.Token()
		name, _ := key.(string)
		found = append(found, entry{name, value})
		for depth := opens(value); depth > 0; {
			token, err := decoder.Token()
			if err != nil {
				return nil, fmt.Errorf("parameters are not JSON: %w", err)
			}
			depth += opens(token)
		}
	}
	return found, nil
}

func opens(token json.Token) int {
	switch token {
	case json.Delim('{'), json.Delim('['):
		return 1
	case json.Delim('}'), json.Delim(']'):
		return -1
	}
	return 0
}

func readParameters(rules []Parameter, text []byte) error {
	given, err := entries(text)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, entry := range given {
		rule := find(rules, entry.name)
		if rule == nil {
			return unknown(entry.name, rules)
		}
		if seen[entry.name] {
			return fmt.Errorf("parameter `%s` comes twice; keep one of the two", entry.name)
		}
		seen[entry.name] = true
		if err := rule.read(entry.value); err != nil {
			return err
		}
	}
	for _, rule := range rules {
		if !rule.Optional && !seen[rule.Name] {
			return fmt.Errorf("missing parameter `%s`", rule.Name)
		}
	}
	return nil
}

func find(rules []Parameter, name string) *Parameter {
	for place := range rules {
		if rules[place].Name == name {
			return &rules[place]
		}
	}
	return nil
}

func unknown(name string, rules []Parameter) error {
	if len(rules) == 0 {
		return fmt.Errorf("unknown parameter `%s`; this policy takes none", name)
	}
	names := make([]string, len(rules))
	for place, rule := range rules {
		names[place] = rule.Name
	}
	return fmt.Errorf("unknown parameter `%s`; use %s", name, oneOf(names))
}

func oneOf(names []string) string {
	last := "`" + names[len(names)-1] + "`"
	if len(names) == 1 {
		return last
	}
	return "`" + strings.Join(names[:len(names)-1], "`, `") + "` or " + last
}

func (p *Parameter) read(value json.Token) error {
	switch into := p.Into.(type) {
	case *float64:
		number, ok := value.(json.Number)
		if !ok {
			return p.expected("a number", value)
		}
		read, err := strconv.ParseFloat(string(number), 64)
		if err != nil {
			return fmt.Errorf("%s: the number %s is too large", p.Name, number)
		}
		*into = read
		return p.within(read)
	case *uint32:
		number, ok := value.(json.Number)
		if !ok {
			return p.expected("a number", value)
		}
		read, err := strconv.ParseUint(string(number), 10, 32)
		if err != nil {
			return fmt.Errorf("%s: expected a whole number from 0 to %d, found %s", p.Name, uint32(math.MaxUint32), number)
		}
		*into = uint32(read)
		return p.within(float64(read))
	case *bool:
		read, ok := value.(bool)
		if !ok {
			return p.expected("true or false", value)
		}
		*into = read
	case *string:
		read, ok := value.(string)
		if !ok {
			return p.expected("a string", value)
		}
		*into = read
		return p.named(read)
	default:
		return fmt.Errorf("the parameter %s is read into a %T; give a *float64, *uint32, *bool or *string", p.Name, into)
	}
	return nil
}

func (p *Parameter) expected(what string, found json.Token) error {
	kind := "null"
	switch found.(type) {
	case json.Number:
		kind = "a number"
	case string:
		kind = "a string"
	case bool:
		kind = "a boolean"
	case json.Delim:
		kind = "a list"
		if found == json.Delim('{') {
			kind = "an object"
		}
	}
	return fmt.Errorf("%s: expected %s, found %s", p.Name, what, kind)
}

func (p *Parameter) named(found string) error {
	for _, name := range p.Names {
		if name == found {
			return nil
		}
	}
	if len(p.Names) == 0 {
		return nil
	}
	return fmt.Errorf("%s: expected %s, found `%s`", p.Name, oneOf(p.Names), found)
}

func (p *Parameter) within(number float64) error {
	if (p.Min == nil || number >= *p.Min) && (p.Above == nil || number > *p.Above) &&
		(p.Max == nil || number <= *p.Max) && (p.Below == nil || number < *p.Below) {
		return nil
	}
	if p.Min != nil && p.Max != nil {
		return fmt.Errorf("%s must be between %s and %s", p.Name, shown(*p.Min), shown(*p.Max))
	}
	var words []string
	for _, bound := range []struct {
		words string
		bound *float64
	}{{"at least", p.Min}, {"above", p.Above}, {"at most", p.Max}, {"below", p.Below}} {
		if bound.bound != nil {
			words = append(words, bound.words+" "+shown(*bound.bound))
		}
	}
	return fmt.Errorf("%s must be %s", p.Name, strings.Join(words, " and "))
}

func shown(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }

// schema is the JSON Schema of the parameters.
func schema(rules []Parameter) string {
	properties := map[string]any{}
	var required []string
	for _, rule := range rules {
		properties[rule.Name] = rule.schema()
		if !rule.Optional {
			required = append(required, rule.Name)
		}
	}
	whole := map[string]any{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"type":                 "object",
		"properties":           properties,
		"additionalProperties": false,
	}
	if required != nil {
		whole["required"] = required
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return "{}"
	}
	return string(text)
}

func (p *Parameter) schema() map[string]any {
	keywords := map[string]any{}
	for keyword, bound := range map[string]*float64{
		"minimum": p.Min, "exclusiveMinimum": p.Above, "maximum": p.Max, "exclusiveMaximum": p.Below,
	} {
		if bound != nil {
			keywords[keyword] = *bound
		}
	}
	if p.Description != "" {
		keywords["description"] = p.Description
	}
	if p.Names != nil {
		keywords["enum"] = p.Names
	}
	if p.Optional {
		keywords["default"] = p.Into
	}
	switch p.Into.(type) {
	case *float64:
		keywords["type"], keywords["format"] = "number", "double"
	case *uint32:
		keywords["type"], keywords["format"] = "integer", "uint32"
		if p.Min == nil {
			keywords["minimum"] = 0
		}
		if p.Max == nil {
			keywords["maximum"] = uint32(math.MaxUint32)
		}
	case *bool:
		keywords["type"] = "boolean"
	case *string:
		keywords["type"] = "string"
	}
	return keywords
}
