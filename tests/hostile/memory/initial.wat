;; attack: Declares 200 pages, more than the limit and less than a slot of the pool.
;; expect: instantiate -> memory
;; memory: 200
