;; attack: Ends itself by exit while it is configured.
;; expect: configure -> trap
;; imports: wasi

;; in configure:
(call $exit (i32.const 1)) (unreachable)
