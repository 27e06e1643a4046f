;; attack: Machine code of a good policy: running it would be running anything.
;; expect: load -> precompiled
;; bytes: precompiled
