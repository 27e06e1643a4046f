;; attack: A table of 100,000 branches.
;; expect: load -> structure (body_bytes)

;; in core:
(func (export "bomb") (param i32)
(block $out (br_table
;; repeat 100000: $out
$out (local.get 0))))
