;; attack: 3,000 loops in a row beside 1,000 locals: a compiler keeps a list of each at each.
;; expect: load -> structure (locals_by_blocks)

;; in core:
(func (export "bomb") (param i32)
;; repeat 1000: (local $l# i32)
;; repeat 1000: (local.set $l# (i32.add (local.get $l#) (local.get 0)))
;; repeat 3000: (loop $x# (br_if $x# (local.get 0)))
;; repeat 1000: (drop (local.get $l#))
)
