module max-in-flight

go 1.24

require pointsman v0.0.0

replace pointsman => ./.pointsman/go
