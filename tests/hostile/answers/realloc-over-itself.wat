;; attack: `cabi_realloc` gives the same room for everything: the guest reads its own confusion.
;; expect: decision -> ok

;; in realloc:
(i32.const 16384)
