;; attack: 10,000 loops in a row that change 1,000 locals: a compiler needs a gigabyte.
;; expect: load -> structure

;; in core:
(func (export "bomb") (param i32)
;; repeat 1000: (local $l# i32)
;; repeat 1000: (local.set $l# (i32.add (local.get $l#) (local.get 0)))
;; repeat 10000: (loop $x# (br_if $x# (local.get 0)))
;; repeat 1000: (drop (local.get $l#))
)
